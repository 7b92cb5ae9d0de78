-- Scopes that an app declares for its own servers: a JSON list of names and descriptions.
ALTER TABLE app ADD COLUMN declared_scopes TEXT NOT NULL DEFAULT '[]';
-- Whether authorization codes of the app always need PKCE. Off only helps clients that prove a secret.
ALTER TABLE app ADD COLUMN require_pkce BOOLEAN NOT NULL DEFAULT TRUE;
