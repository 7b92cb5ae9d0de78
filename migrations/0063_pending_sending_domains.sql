-- Since when a sending domain waits for its records: since it was added, or since it was last asked for anew.
ALTER TABLE email_domain ADD COLUMN pending_since BIGINT;
