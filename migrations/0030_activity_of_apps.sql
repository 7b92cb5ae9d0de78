-- The activity of an app, newest first, and its figures by day.
CREATE INDEX audit_event_app ON audit_event (app_id, at, id) WHERE app_id IS NOT NULL;
