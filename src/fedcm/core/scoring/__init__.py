"""The metrics of an evaluation: from sums over pieces, or from all outputs and labels at once.

traits               direction and range of a metric
summed               accuracy, top5, mae, mse, rmse, perplexity
whole                functions of all outputs and labels of a set
torchmetrics_metric  metrics of torchmetrics by name
metric_set           the metrics of one training, from `evaluation.metrics`
"""
