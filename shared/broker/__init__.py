"""The Celery side: app, transport, consumer, publisher, chords and task outcomes."""
