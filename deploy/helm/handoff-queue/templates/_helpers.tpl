{{/* Name of a part of the release. A "_" of a role becomes "-". Call with (list $ "part"). */}}
{{- define "handoff.name" -}}
{{- $top := index . 0 -}}
{{- printf "%s-%s" (trunc 20 $top.Release.Name | trimSuffix "-") (index . 1 | replace "_" "-") | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select the pods of a part. Call with (list $ "part"). */}}
{{- define "handoff.selector" -}}
app.kubernetes.io/name: handoff-queue
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
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

{{/* The variable with the URL of Redis. */}}
{{- define "handoff.redis" -}}
- name: HANDOFF_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.secrets.redis.name }}
      key: {{ .Values.secrets.redis.key }}
{{- end -}}

{{/* Variables from a map. */}}
{{- define "handoff.variables" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* Environment, probes and mounts of supervisors and workers. Call with (list $ settings). */}}
{{- define "handoff.agent" -}}
{{- $top := index . 0 -}}
{{- with $top.Values.secrets.model }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
env:
  {{- include "handoff.redis" $top | nindent 2 }}
  - name: HANDOFF_DRAIN_S
    value: {{ $top.Values.drainSeconds | quote }}
  {{- include "handoff.variables" (merge (dict) (index . 1) $top.Values.settings) | nindent 2 }}
# The process touches the file every 2 s. It is old if the process is stuck or has no broker.
startupProbe:
  exec: {command: [sh, -c, 'test -n "$(find /tmp/ready -mmin -1)"']}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
readinessProbe:
  exec: {command: [sh, -c, 'test -n "$(find /tmp/ready -mmin -1)"']}
  periodSeconds: 10
  timeoutSeconds: 5
# Longer than the 15 minutes for which a claim waits for an unreachable Redis.
livenessProbe:
  exec: {command: [sh, -c, 'test -n "$(find /tmp/ready -mmin -20)"']}
  periodSeconds: 60
  timeoutSeconds: 5
  failureThreshold: 3
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: cache, mountPath: /var/cache/handoff}
  {{- with $top.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Volumes of supervisors and workers. */}}
{{- define "handoff.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
- {name: cache, emptyDir: {}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
