{{/* Additional flags, of which the program must know each. */}}
{{- define "capi-node-attestation.checkExtraArgs" -}}
{{- $known := .Files.Get "files/flags.yaml" | fromYaml -}}
{{- range .Values.extraArgs -}}
{{- $flag := splitn "=" 2 . -}}
{{- if not (hasKey $known $flag._0) -}}
{{- fail (printf "extraArgs: %s is no flag of node-attestation-controller run %s; the page docs/operating.md lists the flags" $flag._0 $.Chart.AppVersion) -}}
{{- end -}}
{{- if and (eq (get $known $flag._0) "value") (not (contains "=" .)) -}}
{{- fail (printf "extraArgs: %s takes a value: write %s=VALUE as one entry" $flag._0 $flag._0) -}}
{{- end -}}
{{- if and (eq (get $known $flag._0) "switch") (contains "=" .) -}}
{{- fail (printf "extraArgs: %s takes no value: write it without =" $flag._0) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Mounts of volumes that exist. */}}
{{- define "capi-node-attestation.checkVolumes" -}}
{{- $names := list -}}
{{- range .Values.extraVolumes }}{{ $names = append $names .name }}{{ end -}}
{{- if ne (len $names) (len (uniq $names)) -}}
{{- fail "extraVolumes: two volumes have the same name" -}}
{{- end -}}
{{- range .Values.extraVolumeMounts -}}
{{- if not (has .name $names) -}}
{{- fail (printf "extraVolumeMounts: %s is no volume of extraVolumes" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* That a Pod may be evicted at all: (list . replicas "value with the replicas"). Percentages are rounded up, as by Kubernetes. */}}
{{- define "capi-node-attestation.checkDisruptions" -}}
{{- $budget := (index . 0).Values.podDisruptionBudget -}}
{{- $replicas := int (index . 1) -}}
{{- if and $budget.enabled $budget.minAvailable (gt $replicas 1) -}}
{{- $kept := int $budget.minAvailable -}}
{{- if hasSuffix "%" (toString $budget.minAvailable) -}}
{{- $kept = div (add (mul (trimSuffix "%" $budget.minAvailable | int) $replicas) 99) 100 | int -}}
{{- end -}}
{{- if ge $kept $replicas -}}
{{- fail (printf "podDisruptionBudget.minAvailable: with %d in %s, no Pod could be evicted and no node with one drained; lower it" $replicas (index . 2)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Monitors of metrics that are served. */}}
{{- define "capi-node-attestation.checkMonitoring" -}}
{{- $monitoring := .Values.monitoring -}}
{{- range list "serviceMonitor" "podMonitor" -}}
{{- if and (get $monitoring .).enabled (not $.Values.diagnostics.enabled) -}}
{{- fail (printf "monitoring.%s: set diagnostics.enabled too" .) -}}
{{- end -}}
{{- end -}}
{{- if and $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled -}}
{{- fail "monitoring: enable serviceMonitor or podMonitor, not both, or everything is counted twice" -}}
{{- end -}}
{{- if and $monitoring.podMonitor.enabled (not $monitoring.tokenSecret.name) (not .Values.diagnostics.insecure) -}}
{{- fail "monitoring.tokenSecret.name: a PodMonitor reads the token for /metrics from a Secret; name one, or use serviceMonitor" -}}
{{- end -}}
{{- if and $monitoring.scrapers (or (not .Values.rbac.create) (not .Values.diagnostics.enabled) .Values.diagnostics.insecure) -}}
{{- fail "monitoring.scrapers: the role for /metrics exists with rbac.create and diagnostics.enabled, and without diagnostics.insecure" -}}
{{- end -}}
{{- end -}}

{{/* Checks that concern several values, which the schema cannot express. */}}
{{- define "capi-node-attestation.check" -}}
{{- if and (not .Values.image.registry) (not (contains "/" .Values.image.repository)) (ne .Values.image.pullPolicy "Never") -}}
{{- fail (printf "image.registry: there is no image to pull: no registry has %s under this name. Build the image as docs/install.md says, push it, and set image.registry to that registry; or load it on the nodes and set image.pullPolicy to Never" .Values.image.repository) -}}
{{- end -}}
{{- include "capi-node-attestation.checkExtraArgs" . -}}
{{- include "capi-node-attestation.checkVolumes" . -}}
{{- include "capi-node-attestation.checkMonitoring" . -}}
{{- include "capi-node-attestation.checkDisruptions" (list . .Values.replicas "replicas") -}}
{{- if .Values.containers.gateway.enabled -}}
{{- include "capi-node-attestation.checkDisruptions" (list . .Values.containers.gateway.replicas "containers.gateway.replicas") -}}
{{- end -}}
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
