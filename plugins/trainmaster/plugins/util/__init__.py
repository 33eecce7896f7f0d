"""What several plugins share: gangs as PodGroups, and the ConfigMaps and Secrets that pods mount."""
