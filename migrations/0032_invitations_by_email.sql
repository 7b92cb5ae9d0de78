-- Invitations are looked for by the email they are for.
CREATE INDEX org_invite_email ON org_invite (email_key, expires_at);
