-- A mail is tried until it is sent, refused for good or of no more use. What the mail server said last is kept. One that was
-- given up (`died_at`) waits beside its dead job for whoever looks after the installation.
ALTER TABLE mail ADD COLUMN expires_at BIGINT;
ALTER TABLE mail ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE mail ADD COLUMN next_at BIGINT;
ALTER TABLE mail ADD COLUMN last_error TEXT;
ALTER TABLE mail ADD COLUMN died_at BIGINT;
CREATE INDEX mail_dead ON mail (died_at) WHERE died_at IS NOT NULL;

-- The host a webhook leads to, to count those of an app; webhooks from before have none until they are changed. `is_standard`:
-- the headers of Standard Webhooks stand in place of our own.
ALTER TABLE webhook ADD COLUMN host TEXT;
ALTER TABLE webhook ADD COLUMN is_standard BOOLEAN NOT NULL DEFAULT FALSE;

-- Slugs of apps that are gone, or have another one now; until then each is for its organization alone. Slugs that break the
-- rules stay as they are until somebody changes them.
CREATE TABLE slug_hold (
    slug TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    held_until BIGINT NOT NULL
);
CREATE INDEX slug_hold_over ON slug_hold (held_until);

-- A domain is proven while its record stands, and looked at again and again. What was seen there is kept, and since when which
-- record stands, so that a name can go to whoever has it now.
ALTER TABLE app_domain ADD COLUMN seen TEXT;
ALTER TABLE app_domain ADD COLUMN reason TEXT;
ALTER TABLE app_domain ADD COLUMN next_check_at BIGINT;
ALTER TABLE app_domain ADD COLUMN fruitless BIGINT NOT NULL DEFAULT 0;
ALTER TABLE app_domain ADD COLUMN pending_since BIGINT;
ALTER TABLE app_domain ADD COLUMN missing_since BIGINT;
ALTER TABLE app_domain ADD COLUMN contested_since BIGINT;
ALTER TABLE app_domain ADD COLUMN warned_at BIGINT;
UPDATE app_domain SET next_check_at = 0;
CREATE INDEX app_domain_due ON app_domain (next_check_at, app_id) WHERE next_check_at IS NOT NULL;
CREATE INDEX app_domain_claims ON app_domain (domain, app_id);
