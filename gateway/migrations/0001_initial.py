import django.core.validators
import django.db.models.constraints
import django.db.models.deletion
import gateway.models.access
from django.db import migrations, models


APPEND_ONLY = """
CREATE FUNCTION igw_refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER igw_append_only BEFORE UPDATE OR DELETE ON gateway_auditevent
    FOR EACH ROW EXECUTE FUNCTION igw_refuse_rewriting();
CREATE TRIGGER igw_append_only BEFORE UPDATE OR DELETE ON gateway_configrevision
    FOR EACH ROW EXECUTE FUNCTION igw_refuse_rewriting();
"""
NOT_APPEND_ONLY = """
DROP TRIGGER igw_append_only ON gateway_configrevision;
DROP TRIGGER igw_append_only ON gateway_auditevent;
DROP FUNCTION igw_refuse_rewriting();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='ConfigRevision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('actor', models.CharField(max_length=200)),
                ('origin', models.CharField(max_length=200)),
                ('summary', models.CharField(max_length=500)),
                ('document', models.JSONField()),
                ('fingerprint', models.CharField(max_length=64)),
            ],
            options={
                'verbose_name': 'revision',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Team',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(help_text='Letters, digits, - and _; used in files and reports.', max_length=100, unique=True)),
                ('origin', models.CharField(default='admin', editable=False, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='VendorAccount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=100, unique=True)),
                ('backend', models.CharField(default='openai', max_length=50)),
                ('base_url', models.CharField(help_text='For example https://api.openai.com/v1', max_length=500, verbose_name='base URL')),
                ('secret', models.TextField(blank=True, editable=False)),
                ('origin', models.CharField(default='admin', editable=False, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Pool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(help_text='The name that apps ask for.', max_length=200, unique=True)),
                ('aliases', models.JSONField(blank=True, default=list, help_text='Further names for the same pool.')),
                ('backend', models.CharField(default='openai', help_text='The dialect that the workers or the vendor speak.', max_length=50)),
                ('upstream_model', models.CharField(blank=True, help_text='Name that workers know the model by; empty: the served name.', max_length=200)),
                ('policy', models.CharField(default='round_robin', max_length=50)),
                ('policy_options', models.JSONField(blank=True, default=dict)),
                ('requests_per_minute', models.PositiveIntegerField(blank=True, help_text='Calls a minute over all processes; empty: no limit.', null=True, validators=[django.core.validators.MinValueValidator(1)], verbose_name='rate limit')),
                ('max_in_flight', models.PositiveIntegerField(blank=True, help_text='Calls at once in one gateway process; empty: no limit.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('queue', models.JSONField(blank=True, default=dict)),
                ('circuit_breaker', models.JSONField(blank=True, default=dict)),
                ('retry', models.JSONField(blank=True, default=dict)),
                ('timeouts', models.JSONField(blank=True, default=dict)),
                ('health', models.JSONField(blank=True, default=dict)),
                ('stream_usage', models.BooleanField(default=True, help_text='Ask workers for token counts in streams; off for vendors that refuse stream_options.', verbose_name='ask for usage')),
                ('history', models.CharField(choices=[('full', 'full'), ('metadata', 'metadata only'), ('off', 'off')], default='full', max_length=20)),
                ('is_enabled', models.BooleanField(default=True, verbose_name='enabled')),
                ('origin', models.CharField(default='admin', editable=False, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('account', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='pools', to='gateway.vendoraccount')),
            ],
            options={
                'ordering': ['model'],
            },
        ),
        migrations.CreateModel(
            name='AuditEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(db_index=True)),
                ('actor', models.CharField(max_length=200)),
                ('origin', models.CharField(max_length=200)),
                ('action', models.CharField(choices=[('create', 'create'), ('update', 'update'), ('delete', 'delete')], max_length=20)),
                ('kind', models.CharField(max_length=50)),
                ('object', models.CharField(max_length=400)),
                ('changes', models.JSONField()),
                ('chain', models.CharField(max_length=64)),
                ('revision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='events', to='gateway.configrevision')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['kind', 'object'], name='audit_object')],
            },
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=100)),
                ('prefix', models.CharField(editable=False, max_length=32)),
                ('digest', models.CharField(editable=False, max_length=64)),
                ('last4', models.CharField(editable=False, max_length=4)),
                ('source', models.CharField(blank=True, editable=False, max_length=500)),
                ('models', models.JSONField(blank=True, default=gateway.models.access.every_model, help_text='Model names or aliases this key may use; ["*"] is every model, [] is none.')),
                ('requests_per_minute', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('is_operator', models.BooleanField(default=False, help_text='May use the control API.', verbose_name='operator')),
                ('expires_at', models.DateTimeField(blank=True, help_text='Empty: never.', null=True)),
                ('is_disabled', models.BooleanField(default=False, verbose_name='disabled')),
                ('origin', models.CharField(default='admin', editable=False, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('team', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='gateway.team')),
            ],
            options={
                'verbose_name': 'API key',
                'ordering': ['team__name', 'name'],
                'constraints': [models.UniqueConstraint(fields=('team', 'name'), name='apikey_team_name'), models.UniqueConstraint(deferrable=django.db.models.constraints.Deferrable['DEFERRED'], fields=('prefix',), name='apikey_prefix')],
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=100)),
                ('url', models.CharField(help_text='Base address, for example http://10.0.0.5:30000', max_length=500, verbose_name='URL')),
                ('weight', models.PositiveIntegerField(default=1, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(10000)])),
                ('max_in_flight', models.PositiveIntegerField(blank=True, help_text='Calls at once from one gateway process; empty: no limit.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('upstream_model', models.CharField(blank=True, help_text='Empty: as the pool says.', max_length=200)),
                ('profiles', models.JSONField(blank=True, default=list, help_text='What it can do; empty: everything. One row: {"services": ["chat"]}')),
                ('labels', models.JSONField(blank=True, default=dict)),
                ('secret', models.TextField(blank=True, editable=False)),
                ('state', models.CharField(choices=[('active', 'active'), ('draining', 'draining'), ('disabled', 'disabled')], default='active', max_length=20)),
                ('health', models.CharField(choices=[('unknown', 'unknown'), ('healthy', 'healthy'), ('unhealthy', 'unhealthy')], default='unknown', editable=False, max_length=20)),
                ('health_reason', models.CharField(blank=True, editable=False, max_length=200)),
                ('health_at', models.DateTimeField(editable=False, null=True)),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='workers', to='gateway.pool')),
            ],
            options={
                'ordering': ['pool__model', 'name'],
                'constraints': [models.UniqueConstraint(fields=('pool', 'name'), name='worker_pool_name')],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, NOT_APPEND_ONLY),
    ]
