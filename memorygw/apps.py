from django.apps import AppConfig
from django.db.models.signals import post_migrate


class MemorygwConfig(AppConfig):
    name = "memorygw"
    verbose_name = "Memory gateway"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # The checks know the tools, and those the models.
        import memorygw.checks  # noqa: F401
        from memorygw.models import default_tenant

        post_migrate.connect(default_tenant, sender=self)
