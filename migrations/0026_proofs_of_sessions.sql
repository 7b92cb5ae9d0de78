-- When each kind of proof was last given in a session: a password, a code of a second factor, a passkey. A session from
-- before this has none, and proves itself again where a fresh proof is asked for.
ALTER TABLE session ADD COLUMN password_at BIGINT;
ALTER TABLE session ADD COLUMN factor_at BIGINT;
ALTER TABLE session ADD COLUMN passkey_at BIGINT;

-- The app in whose sign-in a device was trusted; none for the service's own.
ALTER TABLE trusted_device ADD COLUMN app_id TEXT REFERENCES app (id) ON DELETE CASCADE;
CREATE INDEX trusted_device_in_app ON trusted_device (app_id) WHERE app_id IS NOT NULL;
