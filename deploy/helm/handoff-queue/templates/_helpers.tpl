{{/* Name of a part of the release. A "_" of a specialist becomes "-". A name of more than 63 characters ends with a digest. Call with (list $ "part"). */}}
{{- define "handoff.name" -}}
{{- $top := index . 0 -}}
{{- $name := printf "%s-%s" (trunc 20 $top.Release.Name | trimSuffix "-") (index . 1 | replace "_" "-") -}}
{{- if gt (len $name) 63 -}}
{{- $name = printf "%s-%s" (trunc 54 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Labels that select all pods of the release. */}}
{{- define "handoff.release" -}}
app.kubernetes.io/name: handoff-queue
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that select the pods of a part. Call with (list $ "part"). */}}
{{- define "handoff.selector" -}}
{{ include "handoff.release" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 | replace "_" "-" }}
{{- end -}}

{{/* Labels of an object of a part. Call with (list $ "part"). */}}
{{- define "handoff.labels" -}}
{{- $top := index . 0 -}}
{{ include "handoff.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version }}
{{- end -}}

{{/* Fields of each pod, without containers and volumes. */}}
{{- define "handoff.pod" -}}
serviceAccountName: {{ include "handoff.name" (list . "handoff") }}
automountServiceAccountToken: false
# Otherwise a Service named handoff-... sets variables that look like settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Fields of each container, without command, probes and environment. */}}
{{- define "handoff.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Variables with the Redis user and the signing key of a part, or with the URL of all parts. Call with (list $ "part"). */}}
{{- define "handoff.keys" -}}
{{- $secrets := (index . 0).Values.secrets -}}
{{- if $secrets.redis.name -}}
- name: HANDOFF_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ $secrets.redis.name }}
      key: {{ $secrets.redis.key }}
{{- else -}}
- name: HANDOFF_REDIS_URL_FILE
  value: /etc/handoff/keys/redis-url
{{- if ne (index . 1) "flower" }}
- name: HANDOFF_KEYS
  value: /etc/handoff/keys/keyring.json
- name: HANDOFF_SIGNING_KEY
  value: /etc/handoff/keys/signing.key
{{- end }}
{{- end }}
{{- end -}}

{{/* Mount and volume of the Secret of a part. */}}
{{- define "handoff.keys-mount" -}}
{{- if not .Values.secrets.redis.name }}
- {name: keys, mountPath: /etc/handoff/keys, readOnly: true}
{{- end }}
{{- end -}}

{{/* Call with (list $ "part"). */}}
{{- define "handoff.keys-volume" -}}
{{- $secrets := (index . 0).Values.secrets -}}
{{- if not $secrets.redis.name }}
- name: keys
  secret:
    secretName: {{ printf "%s-%s" $secrets.processes (index . 1 | replace "_" "-") }}
    # Root owns the files, and the group of the pod reads them.
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* Variables from a map. */}}
{{- define "handoff.variables" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* Environment, probes and mounts of supervisors and workers. Call with (list $ settings "part"). */}}
{{- define "handoff.agent" -}}
{{- $top := index . 0 -}}
{{- with $top.Values.secrets.model }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
env:
  {{- include "handoff.keys" (list $top (index . 2)) | nindent 2 }}
  - name: HANDOFF_DRAIN_S
    value: {{ $top.Values.drainSeconds | quote }}
  {{- include "handoff.variables" (merge (dict) (index . 1) $top.Values.settings) | nindent 2 }}
{{- include "handoff.probes" . | nindent 0 }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: cache, mountPath: /var/cache/handoff}
  {{- include "handoff.keys-mount" $top | nindent 2 }}
  {{- with $top.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Volumes of supervisors and workers. Call with (list $ "part"). */}}
{{- define "handoff.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
- {name: cache, emptyDir: {}}
{{- include "handoff.keys-volume" . }}
{{- with (index . 0).Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
