{{/* The prefix of all object names. Two installations in one cluster need different prefixes. */}}
{{- define "capi-node-attestation.prefix" -}}
{{- .Values.fullnameOverride | default "node-attestation" -}}
{{- end -}}

{{- define "capi-node-attestation.controller" -}}
{{- include "capi-node-attestation.prefix" . }}-controller
{{- end -}}

{{- define "capi-node-attestation.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "capi-node-attestation.controller" .) -}}
{{- else -}}
{{- required "serviceAccount.name is required with serviceAccount.create: false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Users of API servers: the controller, and the controller of bastions. */}}
{{- define "capi-node-attestation.grantController" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "capi-node-attestation.serviceAccount" . }}
{{- end -}}

{{- define "capi-node-attestation.bastionController" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "capi-node-attestation.bastionServiceAccount" . }}
{{- end -}}

{{- define "capi-node-attestation.configSecret" -}}
{{- .Values.config.existingSecret | default (printf "%s-config" (include "capi-node-attestation.prefix" .)) -}}
{{- end -}}

{{- define "capi-node-attestation.selectorLabels" -}}
app.kubernetes.io/name: node-attestation-controller
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Begins with a line break, or is empty. Selectors must not change, so they have none of these. */}}
{{- define "capi-node-attestation.commonLabels" -}}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "capi-node-attestation.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{ include "capi-node-attestation.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- include "capi-node-attestation.commonLabels" . }}
{{- end -}}

{{/* The labels with an object's own, which win over common ones: (list . own). */}}
{{- define "capi-node-attestation.labelsWith" -}}
{{- $labels := include "capi-node-attestation.labels" (index . 0) -}}
{{- with index . 1 }}{{ $labels = merge (dict) . ($labels | fromYaml) | toYaml }}{{ end -}}
{{ $labels }}
{{- end -}}

{{/* The Pod of `helm test`, which no selector of the controller may match. */}}
{{- define "capi-node-attestation.testLabels" -}}
app.kubernetes.io/name: node-attestation-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The bastion controller and its objects. */}}
{{- define "capi-node-attestation.bastions" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}-access-bastions{{ else }}node-access-bastions{{ end -}}
{{- end -}}

{{- define "capi-node-attestation.bastionServiceAccount" -}}
{{- .Values.access.bastionServiceAccount | default (include "capi-node-attestation.bastions" .) -}}
{{- end -}}

{{- define "capi-node-attestation.bastionSelectorLabels" -}}
app.kubernetes.io/name: node-access-bastions
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "capi-node-attestation.bastionLabels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{ include "capi-node-attestation.bastionSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- include "capi-node-attestation.commonLabels" . }}
{{- end -}}

{{/* The gateway to containers and its objects. */}}
{{- define "capi-node-attestation.gateway" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}-access-gateway{{ else }}node-access-gateway{{ end -}}
{{- end -}}

{{- define "capi-node-attestation.gatewaySelectorLabels" -}}
app.kubernetes.io/name: node-access-gateway
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "capi-node-attestation.gatewayLabels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{ include "capi-node-attestation.gatewaySelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- include "capi-node-attestation.commonLabels" . }}
{{- end -}}

{{- define "capi-node-attestation.image" -}}
{{- $name := .Values.image.repository -}}
{{- with .Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* ConfigMap with the authorities of the API server's client certificate; empty if the webhook answers any client. */}}
{{- define "capi-node-attestation.webhookClientAuthorities" -}}
{{- if .Values.access.webhook.enabled }}{{ .Values.access.webhook.clientAuthorities }}{{ end -}}
{{- end -}}

{{/* What both controllers may connect to, for a NetworkPolicy. */}}
{{- define "capi-node-attestation.egress" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
- ports:
    {{- range .Values.networkPolicy.egressPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
