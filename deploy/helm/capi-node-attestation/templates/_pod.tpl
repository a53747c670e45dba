{{/* What the Pods of the controller, of the bastion controller and of the gateway have in common. */}}
{{- define "capi-node-attestation.podSettings" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The restricted Pod Security Standard; the schema of podSecurityContext admits nothing that weakens it. */}}
{{- define "capi-node-attestation.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
{{- if not $.Values.podSecurityContext.fsGroup }}
fsGroup: {{ . }}
{{- end }}
{{- end }}
{{- if not .Values.podSecurityContext.seccompProfile }}
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- with .Values.podSecurityContext }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The same for the container. */}}
{{- define "capi-node-attestation.securityContext" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- with .Values.securityContext }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "capi-node-attestation.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  {{- toYaml .Values.readinessProbe | nindent 2 }}
{{- end -}}

{{/* apiVersion of a PodDisruptionBudget. */}}
{{- define "capi-node-attestation.disruptionBudgetVersion" -}}
{{ if semverCompare ">=1.21-0" .Capabilities.KubeVersion.Version }}policy/v1{{ else }}policy/v1beta1{{ end }}
{{- end -}}

{{/* How many Pods may be evicted. */}}
{{- define "capi-node-attestation.disruptions" -}}
{{- with .Values.podDisruptionBudget -}}
{{- if .minAvailable -}}
minAvailable: {{ toJson .minAvailable }}
{{- else -}}
maxUnavailable: {{ toJson .maxUnavailable }}
{{- end }}
{{- with .unhealthyPodEvictionPolicy }}
unhealthyPodEvictionPolicy: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
