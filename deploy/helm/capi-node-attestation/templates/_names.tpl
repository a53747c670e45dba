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

{{- define "capi-node-attestation.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{ include "capi-node-attestation.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
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

{{/* Checks that concern several values, which the schema cannot express. */}}
{{- define "capi-node-attestation.check" -}}
{{- if and .Values.watch.namespace (eq .Values.watch.namespace .Release.Namespace) -}}
{{- fail "watch.namespace: this is the controller's own namespace, which must stay out of tenants' reach; use another one for Clusters" -}}
{{- end -}}
{{- if and .Values.rbac.create (not .Values.watch.namespace) (has .Release.Namespace .Values.rbac.secretNamespaces) -}}
{{- fail (printf "rbac.secretNamespaces: %s is the controller's own namespace, which must stay out of tenants' reach; use another one for Clusters, or install with --namespace node-attestation-system" .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.diagnostics.enabled (eq (int .Values.health.port) (int .Values.diagnostics.port)) -}}
{{- fail "health.port and diagnostics.port must differ" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) (eq (int .Values.shards) 0) -}}
{{- fail "replicas: more than one needs leaderElection.enabled or shards; otherwise each replica does all the work" -}}
{{- end -}}
{{- $authorities := or .Values.config.certificateAuthorities.suffixesByNamespace .Values.config.certificateAuthorities.sharedBy -}}
{{- $networks := or .Values.config.servingAddresses.networks .Values.config.servingAddresses.networksByNamespace -}}
{{- if and .Values.config.existingSecret (or .Values.config.attestors $authorities $networks .Values.config.rotation.waits .Values.config.rotation.nodeClientAuthority.namespaces .Values.config.ssh.namespaces (ne .Values.config.ssh.masterSecrets "NotAllowed") .Values.config.access.namespaces) -}}
{{- fail "config: set existingSecret or the others, not both" -}}
{{- end -}}
{{- if and .Values.config.rotation.nodeClientAuthority.namespaces (not .Values.rotation.enabled) -}}
{{- fail "config.rotation.nodeClientAuthority: set rotation.enabled too" -}}
{{- end -}}
{{- if and .Values.config.ssh.namespaces (not .Values.ssh.enabled) -}}
{{- fail "config.ssh: set ssh.enabled too" -}}
{{- end -}}
{{- if and .Values.ssh.namespaces (not .Values.ssh.enabled) -}}
{{- fail "ssh.namespaces: set ssh.enabled too" -}}
{{- end -}}
{{- if and .Values.access.enabled (not .Values.ssh.enabled) -}}
{{- fail "access.enabled: set ssh.enabled too" -}}
{{- end -}}
{{- if and .Values.config.access.namespaces (not .Values.access.enabled) -}}
{{- fail "config.access: set access.enabled too" -}}
{{- end -}}
{{- if and .Values.access.namespaces (not .Values.access.enabled) -}}
{{- fail "access.namespaces: set access.enabled too" -}}
{{- end -}}
{{- if and .Values.access.webhook.enabled (not .Values.access.enabled) -}}
{{- fail "access.webhook: set access.enabled too" -}}
{{- end -}}
{{- if and .Values.access.webhook.clientNames (not .Values.access.webhook.clientAuthorities) -}}
{{- fail "access.webhook.clientNames: set access.webhook.clientAuthorities too" -}}
{{- end -}}
{{- if and .Values.access.webhook.clientAuthorities (not .Values.access.webhook.enabled) -}}
{{- fail "access.webhook.clientAuthorities: set access.webhook.enabled too" -}}
{{- end -}}
{{- if and .Values.containers.enabled (not .Values.access.enabled) -}}
{{- fail "containers.enabled: set access.enabled too" -}}
{{- end -}}
{{- if and .Values.containers.gateway.enabled (not .Values.containers.enabled) -}}
{{- fail "containers.gateway: set containers.enabled too" -}}
{{- end -}}
{{- if .Values.containers.enabled -}}
{{- $gateways := .Values.config.access.gatewayNamespace -}}
{{- if or (eq $gateways .Release.Namespace) (eq $gateways .Values.watch.namespace) (has $gateways .Values.rbac.secretNamespaces) -}}
{{- fail "config.access.gatewayNamespace: this needs a namespace of its own, because the gateway can read every Secret in it" -}}
{{- end -}}
{{- end -}}
{{- $bastions := .Values.access.bastions -}}
{{- if $bastions.enabled -}}
{{- if not $bastions.hostKeySecret -}}
{{- fail "access.bastions.hostKeySecret: name a Secret with 32 random bytes under the key secret" -}}
{{- end -}}
{{- if and $bastions.existingConfigSecret (or $bastions.config.owner $bastions.config.providers) -}}
{{- fail "access.bastions: set existingConfigSecret or config, not both" -}}
{{- end -}}
{{- if not (or $bastions.existingConfigSecret $bastions.config.owner) -}}
{{- fail "access.bastions.config.owner: give this fleet a name of its own, with which its resources are tagged" -}}
{{- end -}}
{{- if and $bastions.podNamespace (or (eq $bastions.podNamespace .Release.Namespace) (has $bastions.podNamespace .Values.rbac.secretNamespaces)) -}}
{{- fail "access.bastions.podNamespace: this needs a namespace of its own, because the bastion controller can read every Secret in it" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.rotation.namespaces (not .Values.rotation.enabled) -}}
{{- fail "rotation.namespaces: set rotation.enabled too" -}}
{{- end -}}
{{- $readable := .Values.rbac.secretNamespaces | default list -}}
{{- with .Values.watch.namespace }}{{ $readable = list . }}{{ end -}}
{{- range .Values.rotation.namespaces -}}
{{- if and $.Values.rbac.create (not (has . $readable)) -}}
{{- fail (printf "rotation.namespaces: the controller cannot read the CAs in %s: add it to rbac.secretNamespaces, or watch no other namespace" .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.access.namespaces -}}
{{- if and $.Values.rbac.create (not (has . $readable)) -}}
{{- fail (printf "access.namespaces: the controller cannot read Secrets in %s: add it to rbac.secretNamespaces, or watch no other namespace" .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.ssh.namespaces -}}
{{- if and $.Values.rbac.create (not (has . $readable)) -}}
{{- fail (printf "ssh.namespaces: the controller cannot read Secrets in %s: add it to rbac.secretNamespaces, or watch no other namespace" .) -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) .Values.auditLog.enabled .Values.auditLog.persistentVolumeClaim -}}
{{- fail "auditLog: a file has one writer; with several replicas, write to standard output (path \"-\")" -}}
{{- end -}}
{{- if and .Values.auditLog.enabled (eq .Values.auditLog.path "-") .Values.auditLog.persistentVolumeClaim -}}
{{- fail "auditLog.path: \"-\" is standard output, and nothing would be written to auditLog.persistentVolumeClaim; name a file, or leave the claim out" -}}
{{- end -}}
{{- if and .Values.auditLog.enabled (ne .Values.auditLog.path "-") (not .Values.auditLog.persistentVolumeClaim) -}}
{{- fail "auditLog.path: a file needs auditLog.persistentVolumeClaim, because the container's file system is read-only" -}}
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
