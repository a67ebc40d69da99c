from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_delete, post_migrate


class MemorygwConfig(AppConfig):
    name = "memorygw"
    verbose_name = "Memory gateway"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # The checks know the tools, and those the models.
        import memorygw.checks
        import memorygw.personal  # noqa: F401
        from memorygw.host_users import forget_deleted
        from memorygw.models import default_tenant

        post_migrate.connect(default_tenant, sender=self)
        post_delete.connect(forget_deleted, sender=settings.AUTH_USER_MODEL)
