{{/* The image, by its digest where there is one. */}}
{{- define "slopewise.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The name of the settings as kustomize makes it: it ends in a hash of the content, so that a changed address rolls the
Deployment. The hash is the first ten digits of a SHA-256, with letters in the place of those that could make a word. */}}
{{- define "slopewise.settingsName" -}}
{{- $content := dict "data" (dict "PROMETHEUS_URL" .Values.prometheus.url) "kind" "ConfigMap" "name" "" -}}
{{- $hash := $content | toJson | sha256sum | trunc 10 -}}
slopewise-settings-{{ $hash | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end -}}
