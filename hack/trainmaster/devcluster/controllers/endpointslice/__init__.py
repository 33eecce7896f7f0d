"""The EndpointSlice controller, which keeps Endpoints as well."""
