"""The status of ResourceQuotas."""
