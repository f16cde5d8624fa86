FROM python:3.11-slim
RUN useradd --system --create-home --home-dir /var/lib/igw igw
WORKDIR /srv/igw
COPY requirements.lock .
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .
USER igw
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 IGW_STATE_DIR=/var/lib/igw IGW_HOST=0.0.0.0 IGW_DEMO=0
CMD ["python", "manage.py", "serve"]
