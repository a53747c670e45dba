{{/* Kind of the roles for watched objects: in all namespaces, or in watch.namespace only. */}}
{{- define "capi-node-attestation.watchedKind" -}}
{{- if .Values.watch.namespace }}Role{{ else }}ClusterRole{{ end -}}
{{- end -}}

{{/* Metadata of such a role or of its binding: (list . "name after the prefix"). */}}
{{- define "capi-node-attestation.watchedMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "capi-node-attestation.prefix" $root }}-{{ index . 1 }}
{{- with $root.Values.watch.namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "capi-node-attestation.labels" $root | nindent 2 }}
{{- end -}}

{{/* Binding of such a role: (list . "name after the prefix"). */}}
{{- define "capi-node-attestation.watchedBinding" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ include "capi-node-attestation.watchedKind" $root }}Binding
metadata:
  {{- include "capi-node-attestation.watchedMetadata" . | nindent 2 }}
{{ include "capi-node-attestation.bound" (list $root (include "capi-node-attestation.watchedKind" $root) (index . 1)) }}
{{- end -}}

{{/* roleRef and subjects of a binding for the controller: (list . "kind of role" "name after the prefix"). */}}
{{- define "capi-node-attestation.bound" -}}
{{- $root := index . 0 -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ include "capi-node-attestation.prefix" $root }}-{{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "capi-node-attestation.serviceAccount" $root | quote }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end -}}

{{/*
Bindings of a ClusterRole, one in each namespace: (list . "name after the prefix" namespaces). With watch.namespace, one
binding in that namespace.
*/}}
{{- define "capi-node-attestation.bindingsIn" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $namespaces := index . 2 -}}
{{- with $root.Values.watch.namespace }}{{ $namespaces = list . }}{{ end -}}
{{- range $namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "capi-node-attestation.prefix" $root }}-{{ $name }}
  namespace: {{ . | quote }}
  labels:
    {{- include "capi-node-attestation.labels" $root | nindent 4 }}
{{ include "capi-node-attestation.bound" (list $root "ClusterRole" $name) }}
{{- end }}
{{- end -}}
