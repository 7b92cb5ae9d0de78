-- Since when pages of a served domain may ask for passkeys of this service; nothing for those that may not.
ALTER TABLE app_domain ADD COLUMN passkeys_at BIGINT;
CREATE INDEX app_domain_passkeys ON app_domain (passkeys_at, id) WHERE passkeys_at IS NOT NULL;
