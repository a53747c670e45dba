{{/* Roles of what is watched: in all namespaces, or in watch.namespace alone. */}}
{{- define "capi-node-attestation.watchedKind" -}}
{{- if .Values.watch.namespace }}Role{{ else }}ClusterRole{{ end -}}
{{- end -}}

{{/* Metadata of such a role or its binding: (list . "name behind the prefix"). */}}
{{- define "capi-node-attestation.watchedMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "capi-node-attestation.prefix" $root }}-{{ index . 1 }}
{{- with $root.Values.watch.namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "capi-node-attestation.labels" $root | nindent 2 }}
{{- end -}}

{{/* The binding of such a role: (list . "name behind the prefix"). */}}
{{- define "capi-node-attestation.watchedBinding" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ include "capi-node-attestation.watchedKind" $root }}Binding
metadata:
  {{- include "capi-node-attestation.watchedMetadata" . | nindent 2 }}
{{ include "capi-node-attestation.bound" (list $root (include "capi-node-attestation.watchedKind" $root) (index . 1)) }}
{{- end -}}

{{/* Which role is bound to the controller: (list . "kind of role" "name behind the prefix"). */}}
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
The bindings of a ClusterRole, one in each namespace: (list . "name behind the prefix" namespaces). With watch.namespace there
is that one.
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
