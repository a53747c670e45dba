{{/* Namespaces and names of what serves metrics. */}}
{{- define "capi-node-attestation.scraped" -}}
namespaceSelector:
  matchNames:
    - {{ .Release.Namespace | quote }}
    {{- if .Values.containers.gateway.enabled }}
    - {{ .Values.config.access.gatewayNamespace | quote }}
    {{- end }}
selector:
  matchLabels:
    app.kubernetes.io/instance: {{ .Release.Name | quote }}
  matchExpressions:
    - key: app.kubernetes.io/name
      operator: In
      values:
        - node-attestation-controller
        {{- if .Values.access.bastions.enabled }}
        - node-access-bastions
        {{- end }}
        {{- if .Values.containers.gateway.enabled }}
        - node-access-gateway
        {{- end }}
{{- end -}}

{{/* An endpoint of a monitor: (list . "serviceMonitor" or "podMonitor"). */}}
{{- define "capi-node-attestation.scrapeEndpoint" -}}
{{- $root := index . 0 -}}
{{- $monitoring := $root.Values.monitoring -}}
{{- $monitor := get $monitoring (index . 1) -}}
port: metrics
path: /metrics
{{- if $root.Values.diagnostics.insecure }}
scheme: http
{{- else }}
scheme: https
# The certificate is self-signed at each start. The token protects the metrics.
tlsConfig:
  insecureSkipVerify: true
{{- if $monitoring.tokenSecret.name }}
authorization:
  credentials:
    name: {{ $monitoring.tokenSecret.name | quote }}
    key: {{ $monitoring.tokenSecret.key | quote }}
{{- else }}
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}
{{- end }}
{{- with $monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with $monitor.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Metadata of an object of monitoring: (list . "its part of monitoring" "its name"). */}}
{{- define "capi-node-attestation.monitoringMetadata" -}}
{{- $root := index . 0 -}}
{{- $part := get $root.Values.monitoring (index . 1) -}}
name: {{ index . 2 }}
namespace: {{ $part.namespace | default $root.Release.Namespace | quote }}
labels:
  {{- include "capi-node-attestation.labelsWith" (list $root $part.labels) | nindent 2 }}
{{- with $part.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Groups of rules without those that are disabled, and with links to the page that the operator names. */}}
{{- define "capi-node-attestation.ruleGroups" -}}
{{- $settings := .Values.monitoring.prometheusRule -}}
{{- $known := list -}}
{{- $groups := list -}}
{{- range (.Files.Get "files/monitoring/alerts.yaml" | fromYaml).spec.groups -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- $known = append $known .alert -}}
{{- if not (has .alert $settings.disabled) -}}
{{- $annotations := omit .annotations "runbook_url" -}}
{{- if $settings.runbookURL -}}
{{- $_ := set $annotations "runbook_url" (printf "%s#%s" $settings.runbookURL (lower .alert)) -}}
{{- end -}}
{{- $labels := merge (dict) .labels $settings.ruleLabels -}}
{{- $rules = append $rules (merge (dict "annotations" $annotations "labels" $labels) (omit . "annotations" "labels")) -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (dict "name" .name "rules" $rules) -}}
{{- end -}}
{{- end -}}
{{- range $settings.disabled -}}
{{- if not (has . $known) -}}
{{- fail (printf "monitoring.prometheusRule.disabled: there is no alert %s; docs/observability.md has a heading for each" .) -}}
{{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}
