"""The built-in admission plugins: LimitRanger, Priority, RuntimeClass, ServiceAccount, StorageObjectInUseProtection."""
