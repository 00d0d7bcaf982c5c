{{/*
The first part of the names of all objects. A release named livestash does not get its name twice.
*/}}
{{- define "livestash-observability.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if has .Release.Name (list "livestash" "livestash-observability") -}}
livestash
{{- else -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}-livestash
{{- end -}}
{{- end -}}

{{/*
The labels of an object. Takes a dict of context (the chart's context), component and more, labels of the user's for this
object. The chart's own labels win over the user's.
*/}}
{{- define "livestash-observability.labels" -}}
{{- $own := dict
  "app.kubernetes.io/name" "livestash-observability"
  "app.kubernetes.io/instance" .context.Release.Name
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/part-of" "livestash"
  "app.kubernetes.io/managed-by" .context.Release.Service
  "app.kubernetes.io/version" .context.Chart.AppVersion
  "helm.sh/chart" (printf "livestash-observability-%s" (.context.Chart.Version | replace "+" "_")) -}}
{{- toYaml (merge $own .more .context.Values.commonLabels) -}}
{{- end -}}
