{{/* Names are those of the original's chart: an upgrade of its release replaces its objects. */}}
{{- define "trainer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "trainer.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "trainer.manager.name" -}}
{{ include "trainer.fullname" . }}-controller-manager
{{- end -}}

{{- define "trainer.configmap.name" -}}
{{ include "trainer.fullname" . }}-config
{{- end -}}

{{- define "trainer.installer.name" -}}
{{ include "trainer.fullname" . }}-runtimes-installer
{{- end -}}

{{- define "trainer.secret.name" -}}
{{- .Values.manager.config.certManagement.webhookSecretName | default (printf "%s-webhook-cert" (include "trainer.name" .)) -}}
{{- end -}}

{{/* Whether the certificates come from elsewhere: not empty if so. */}}
{{- define "trainer.certificates.external" -}}
{{- if or .Values.certManager.enabled (not .Values.manager.config.certManagement.enable) -}}
true
{{- end -}}
{{- end -}}

{{- define "trainer.service.name" -}}
{{- .Values.manager.config.certManagement.webhookServiceName | default (include "trainer.manager.name" .) -}}
{{- end -}}

{{/* By which the Deployment selects its pods: nothing may change here. */}}
{{- define "trainer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "trainer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: kubeflow
app.kubernetes.io/component: manager
{{- with .Values.manager.selectorLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of an object: include "trainer.labels" (list COMPONENT .) */}}
{{- define "trainer.labels" -}}
{{- $component := index . 0 -}}
{{- with index . 1 -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "trainer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: kubeflow
app.kubernetes.io/component: {{ $component }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "trainer.manager.labels" -}}
{{ include "trainer.labels" (list "manager" .) }}
{{- with .Values.manager.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Registry, repository and tag as one: include "trainer.image" (list IMAGE DEFAULT-TAG) */}}
{{- define "trainer.image" -}}
{{- $image := index . 0 -}}
{{- $tag := $image.tag | default (index . 1) -}}
{{- if has $image.registry (list "" "docker.io") -}}
{{- printf "%s:%s" $image.repository $tag -}}
{{- else -}}
{{- printf "%s/%s:%s" $image.registry $image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* The kinds of the Training Operator's jobs that are served, below `kinds`: in lower case, as definitions have them. */}}
{{- define "trainer.jobKinds" -}}
{{- $given := .Values.manager.config.trainingOperator -}}
{{- $all := list "jaxjob" "mpijob" "paddlejob" "pytorchjob" "tfjob" "xgboostjob" -}}
{{- $chosen := list -}}
{{- range $all -}}
{{- if and $given.enabled (or (empty $given.enableScheme) (has . ($given.enableScheme | join "," | lower | splitList ","))) -}}
{{- $chosen = append $chosen . -}}
{{- end -}}
{{- end -}}
{{ dict "kinds" $chosen | toYaml }}
{{- end -}}

{{/* The configuration file of the manager. */}}
{{- define "trainer.config" -}}
{{- $config := deepCopy .Values.manager.config -}}
{{- $certificates := dict "webhookServiceName" (include "trainer.service.name" .) "webhookSecretName" (include "trainer.secret.name" .) -}}
{{- if .Values.certManager.enabled -}}
{{- $_ := set $certificates "enable" false -}}
{{- end -}}
{{- $_ := set $config "certManagement" (mergeOverwrite (deepCopy $config.certManagement) $certificates) -}}
{{- with (dig "controller" "groupKindConcurrency" dict $config) -}}
{{- $kinds := dict "trainJob" "TrainJob" "trainingRuntime" "TrainingRuntime" "clusterTrainingRuntime" "ClusterTrainingRuntime" -}}
{{- $concurrency := dict -}}
{{- range $key, $value := . -}}
{{- $_ := set $concurrency (ternary (printf "%s.trainer.kubeflow.org" (get $kinds $key)) $key (hasKey $kinds $key)) $value -}}
{{- end -}}
{{- $_ := set $config "controller" (dict "groupKindConcurrency" $concurrency) -}}
{{- end -}}
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
{{ toYaml $config }}
{{- end -}}

{{/* Whether the history is in a file, and so on a volume. A volume of one node serves one replica. */}}
{{- define "trainer.history.volume" -}}
{{- $history := .Values.manager.config.history -}}
{{- if and $history.enabled (not $history.databaseUrlFile) -}}
{{- if or .Values.ha.enabled (gt (int .Values.manager.replicas) 1) -}}
{{- fail "manager.config.history.enabled keeps a file on a volume, which serves one replica: set manager.config.history.databaseUrlFile to have the history in PostgreSQL, or leave ha.enabled and manager.replicas as they are (docs/history.md)" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* The claim of the volume with the history. */}}
{{- define "trainer.history.claim" -}}
{{- .Values.manager.historyVolume.existingClaim | default (printf "%s-history" (include "trainer.fullname" .)) -}}
{{- end -}}

{{/* The port of an address like `:8443`. */}}
{{- define "trainer.port" -}}
{{- splitList ":" . | last -}}
{{- end -}}

{{/* Documents of a file that this chart has from deploy/, as a list below `items`. */}}
{{- define "trainer.documents" -}}
items:
{{- range regexSplit "(?m)^---$" . -1 }}
{{- with fromYaml . }}
  - {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}
