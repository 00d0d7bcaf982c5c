{{/*
The first part of the names of all objects. A release named livestash does not get its name twice, and neither does one
whose name has nameOverride in it.
*/}}
{{- define "livestash-observability.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if .Values.nameOverride -}}
{{- if contains .Values.nameOverride .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}-{{ .Values.nameOverride }}
{{- end -}}
{{- else if has .Release.Name (list "livestash" "livestash-observability") -}}
livestash
{{- else -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}-livestash
{{- end -}}
{{- end -}}

{{/*
The metadata of an object. Takes a dict of context (the chart's context), name, namespace and component, and labels and annotations
of this object alone. The chart's own labels win over the user's.
*/}}
{{- define "livestash-observability.metadata" -}}
{{- $own := dict
  "app.kubernetes.io/name" "livestash-observability"
  "app.kubernetes.io/instance" .context.Release.Name
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/part-of" "livestash"
  "app.kubernetes.io/managed-by" .context.Release.Service
  "app.kubernetes.io/version" .context.Chart.AppVersion
  "helm.sh/chart" (printf "livestash-observability-%s" (.context.Chart.Version | replace "+" "_")) -}}
{{- $metadata := dict "name" .name "namespace" .namespace "labels" (merge $own .labels .context.Values.commonLabels) -}}
{{- with merge (dict) .annotations .context.Values.commonAnnotations -}}
{{- $_ := set $metadata "annotations" . -}}
{{- end -}}
{{- toYaml $metadata -}}
{{- end -}}
