"""Every metric of Trainmaster: names, labels and buckets. No other package names a metric."""
