"""memorygw behind the interfaces of other agent frameworks. A framework is needed by its own module alone."""
