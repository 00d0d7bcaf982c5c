{{/*
Labels of an object of this chart. Takes a dict of context (the chart's context) and part.
*/}}
{{- define "livestash-platform.labels" -}}
app.kubernetes.io/name: livestash-platform
app.kubernetes.io/instance: {{ .context.Release.Name }}
app.kubernetes.io/component: {{ .part }}
app.kubernetes.io/part-of: livestash
app.kubernetes.io/managed-by: {{ .context.Release.Service }}
helm.sh/chart: livestash-platform-{{ .context.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/*
A PodMonitor for one of the operators: redis-operator's chart has none, and k6-operator's has one that is not tied to
whether prometheus-operator is installed. Takes a dict of context (the chart's context), part, port and selector.
*/}}
{{- define "livestash-platform.podMonitor" -}}
{{- $own := include "livestash-platform.labels" . | fromYaml -}}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .context.Release.Name }}-{{ .part }}
  namespace: {{ .context.Release.Namespace }}
  labels:
    {{- toYaml (merge $own .context.Values.podMonitors.labels) | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- toYaml .selector | nindent 6 }}
  podMetricsEndpoints:
  - port: {{ .port }}
{{ end -}}
