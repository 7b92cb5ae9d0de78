-- What a person recognises a trusted device by. A device that was trusted before this has no id of its own, and is named
-- by its hash.
ALTER TABLE trusted_device ADD COLUMN id TEXT NOT NULL DEFAULT '';
ALTER TABLE trusted_device ADD COLUMN user_agent TEXT NOT NULL DEFAULT '';
ALTER TABLE trusted_device ADD COLUMN ip TEXT NOT NULL DEFAULT '';
ALTER TABLE trusted_device ADD COLUMN last_used_at BIGINT;

-- How many mails that a stranger can ask for went to one email, in an hour and in a day, each from the first one on. Whose
-- email it is is kept as a keyed digest.
CREATE TABLE mail_budget (
    subject TEXT PRIMARY KEY,
    hour_from BIGINT NOT NULL,
    hour_sent BIGINT NOT NULL,
    day_from BIGINT NOT NULL,
    day_sent BIGINT NOT NULL
);
CREATE INDEX mail_budget_age ON mail_budget (day_from);
