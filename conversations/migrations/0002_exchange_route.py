from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0001_initial")]

    operations = [
        migrations.AddField(
            "exchange",
            "route",
            models.JSONField(null=True, help_text="A group's walk: members in order, with reasons and results."),
        ),
    ]
