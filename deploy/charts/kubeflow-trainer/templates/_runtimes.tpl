{{/* The names of the built-in runtimes that are wanted, each with the image that replaces its own. */}}
{{- define "trainer.runtimes" -}}
{{- $runtimes := .Values.runtimes -}}
{{- $tune := $runtimes.torchtuneDistributed -}}
{{- $known := dict
    "torch-distributed" (list $runtimes.torchDistributed.enabled)
    "deepspeed-distributed" (list $runtimes.deepspeedDistributed.enabled "deepspeed-runtime" $runtimes.deepspeedDistributed.image)
    "mlx-distributed" (list $runtimes.mlxDistributed.enabled "mlx-runtime" $runtimes.mlxDistributed.image)
    "jax-distributed" (list $runtimes.jaxDistributed.enabled)
    "xgboost-distributed" (list $runtimes.xgboostDistributed.enabled "xgboost-runtime" $runtimes.xgboostDistributed.image)
    "torchtune-llama3.2-1b" (list $tune.llama3_2_1B.enabled "torchtune-trainer" $tune.image)
    "torchtune-llama3.2-3b" (list $tune.llama3_2_3B.enabled "torchtune-trainer" $tune.image)
    "torchtune-qwen2.5-1.5b" (list $tune.qwen2_5_1_5B.enabled "torchtune-trainer" $tune.image)
-}}
{{- $wanted := dict -}}
{{- range $name, $runtime := $known -}}
{{- if or (index $runtime 0) $runtimes.defaultEnabled -}}
{{- $_ := set $wanted $name (rest $runtime) -}}
{{- end -}}
{{- end -}}
{{- if .Values.dataCache.runtimes.torchDistributedWithCache.enabled -}}
{{- if not .Values.dataCache.enabled -}}
{{- fail "dataCache.runtimes.torchDistributedWithCache.enabled needs dataCache.enabled: set it to true as well" -}}
{{- end -}}
{{- $_ := set $wanted "torch-distributed-with-cache" (list "data-cache" .Values.dataCache.cacheImage) -}}
{{- end -}}
{{- toJson $wanted -}}
{{- end -}}

{{/* Their manifests. */}}
{{- define "trainer.runtimes.manifests" -}}
{{- $root := . -}}
{{- $release := (.Files.Get "files/release.yaml" | fromYaml).trainer -}}
{{- range $name, $image := include "trainer.runtimes" . | fromJson }}
{{- $text := $root.Files.Get (printf "files/runtimes/%s.yaml" $name) }}
{{- if $image }}
{{- $text = replace (printf "ghcr.io/kubeflow/trainer/%s:%s" (index $image 0) $release) (include "trainer.image" (list (index $image 1) $release)) $text }}
{{- end }}
---
{{ merge (fromYaml $text) (dict "metadata" (dict "labels" $root.Values.runtimes.commonLabels)) | toYaml }}
{{- end }}
{{- end -}}

{{/* The Job that installs or removes them: include "trainer.installer" (list NAME HOOKS ARGS .) */}}
{{- define "trainer.installer" -}}
{{- $name := index . 0 -}}
{{- $hooks := index . 1 -}}
{{- $args := index . 2 -}}
{{- with index . 3 -}}
{{- $installer := .Values.runtimes.installer -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "trainer.labels" (list "runtimes-installer" .) | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $hooks }}
    # One that failed stays, for whoever looks why.
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 300
  template:
    metadata:
      labels:
        {{- include "trainer.labels" (list "runtimes-installer" .) | nindent 8 }}
    spec:
      restartPolicy: OnFailure
      serviceAccountName: {{ include "trainer.installer.name" . }}
      automountServiceAccountToken: true
      {{- with $installer.imagePullSecrets | default .Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.manager.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: installer
          image: {{ include "trainer.image" (list .Values.image .Chart.AppVersion) }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          command:
            - trainmaster
            - runtimes
          args:
            {{- toYaml $args | nindent 12 }}
          {{- with $installer.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .Values.manager.securityContext }}
          securityContext:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            - name: tmp
              mountPath: /tmp
            - name: runtimes
              mountPath: /runtimes
              readOnly: true
      volumes:
        - name: tmp
          emptyDir:
            sizeLimit: 16Mi
        - name: runtimes
          configMap:
            name: {{ include "trainer.installer.name" . }}
      {{- with $installer.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $installer.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $installer.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
{{- end -}}
