-- Whether an account with an unverified email is more than a sign-up: a platform owner created it, or its email was verified
-- before. Later sign-ups with the email change nothing of it.
ALTER TABLE account ADD COLUMN established BOOLEAN NOT NULL DEFAULT FALSE;
