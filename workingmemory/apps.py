from django.apps import AppConfig


class WorkingMemoryConfig(AppConfig):
    name = "workingmemory"
    label = "memorygw_workingmemory"
    verbose_name = "Working memory"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # What is declared needs the models.
        import workingmemory.personal  # noqa: F401
