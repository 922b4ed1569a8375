{{/* Startup, readiness and liveness probes of supervisors and workers. */}}
{{- define "handoff.probes" -}}
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
{{- end -}}
