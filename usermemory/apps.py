from django.apps import AppConfig


class UserMemoryConfig(AppConfig):
    name = "usermemory"
    label = "memorygw_usermemory"
    verbose_name = "User memory"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # What is declared needs the models.
        import usermemory.personal  # noqa: F401
