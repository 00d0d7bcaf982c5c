{{/*
What to do after an installation. A template of its own, because Helm shows the notes of a release's main chart only.
*/}}
{{- define "livestash-observability.notes" -}}
{{- if .Values.dashboards.enabled -}}
Dashboards: {{ .Values.dashboards.folder | default "the general folder" }} in Grafana, where its sidecar looks for ConfigMaps with the label
{{- range $name, $value := .Values.dashboards.labels }} {{ $name }}={{ $value }}{{ end }}.
{{- end }}
{{- if .Values.prometheusRules.enabled }}
Alerts: PrometheusRule {{ include "livestash-observability.fullname" . }}. {{ if not .Values.prometheusRules.labels -}}
It has no label by which a kube-prometheus-stack with its defaults finds it: set prometheusRules.labels.release to the name of that release.
{{- end }}
{{- else if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule" }}
Alerts are off, and this cluster could take them: set prometheusRules.enabled=true.
{{- end }}
{{- end -}}
