{{/* Time for the start of a process: 10 minutes. */}}
{{- define "handoff.startup-time" -}}
# The imports of a worker took 5 minutes on 2 cores with a load of 40. A shorter limit would restart the pods of a slow node again and again.
periodSeconds: 2
failureThreshold: 300
{{- end -}}

{{/* Startup, readiness and liveness probes of supervisors and workers. */}}
{{- define "handoff.probes" -}}
# The process touches the file every 2 s. It is old if the process is stuck or has no broker.
startupProbe:
  exec: {command: [sh, -c, 'test -n "$(find /tmp/ready -mmin -1)"']}
  timeoutSeconds: 5
  {{- include "handoff.startup-time" . | nindent 2 }}
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
{{- end -}}
