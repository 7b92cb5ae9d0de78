//! Second factors: which ones a person has, and whether what they typed proves one.
use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use db::{Db, FromRow, Read, Row, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    id::Id,
};
use totp_rs::{Builder, Totp};

pub use crate::ids::Factor;
use crate::{
    accounts::{Account, passkeys::Passkey},
    email::Email,
    enter::Visitor,
    ids::{AccountId, ApplicationId},
    messages::sms,
    once::{self, Purpose},
};

/// How many recovery codes a person gets.
pub const RECOVERY_CODES: usize = 10;
const RECOVERY_BYTES: usize = 10;
/// What RFC 4226 recommends.
const SECRET_BYTES: usize = 20;
const DIGITS: usize = 6;
const TRUSTED: Duration = Duration::from_hours(30 * 24);

/// The factors a person has switched on.
#[derive(Debug, Clone, Default)]
pub struct Factors {
    pub totp: bool,
    pub sms_phone: Option<String>,
    pub recovery_left: i64,
    /// No second factor that is asked for: a passkey proves two at once.
    pub passkeys: Vec<Passkey>,
    has_passkeys: bool,
}

impl Factors {
    fn read(row: &mut Row) -> db::Result<Self> {
        Ok(Self {
            totp: row.get::<Option<Timestamp>>("totp_at")?.is_some(),
            sms_phone: row.get("sms_phone")?,
            recovery_left: row.get("recovery_left")?,
            has_passkeys: row.get("has_passkeys")?,
            passkeys: vec![],
        })
    }
}

impl FromRow for Factors {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Self::read(&mut row)
    }
}

/// An account with its factors, in one statement: what every signed-in request needs to know.
pub struct Whole {
    pub account: Account,
    pub factors: Factors,
}

impl FromRow for Whole {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { factors: Factors::read(&mut row)?, account: Account::from_row(row)? })
    }
}

const FACTORS: &str = "SELECT (SELECT enabled_at FROM totp_factor WHERE account_id = $1) AS totp_at,
            (SELECT phone FROM sms_factor WHERE account_id = $1) AS sms_phone,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM recovery_code WHERE account_id = $1 AND used_at IS NULL)
              AS recovery_left,
            EXISTS (SELECT 1 FROM passkey WHERE account_id = $1) AS has_passkeys";
const WHOLE: &str = "SELECT account.*, (SELECT enabled_at FROM totp_factor WHERE account_id = $1) AS totp_at,
            (SELECT phone FROM sms_factor WHERE account_id = $1) AS sms_phone,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM recovery_code WHERE account_id = $1 AND used_at IS NULL)
              AS recovery_left,
            EXISTS (SELECT 1 FROM passkey WHERE account_id = $1) AS has_passkeys
     FROM account WHERE id = $1";

impl Whole {
    pub async fn find(mut from: impl Read, account: AccountId) -> db::Result<Option<Self>> {
        let mut whole: Option<Self> = from.opt(WHOLE, params![account]).await?;
        if let Some(factors) = whole.as_mut().map(|whole| &mut whole.factors).filter(|factors| factors.has_passkeys) {
            factors.passkeys = Passkey::of(from, account).await?;
        }
        Ok(whole)
    }
}

impl Factors {
    pub async fn of(mut from: impl Read, account: AccountId) -> db::Result<Self> {
        let mut factors: Self = from.one(FACTORS, params![account]).await?;
        if factors.has_passkeys {
            factors.passkeys = Passkey::of(from, account).await?;
        }
        Ok(factors)
    }

    /// Whether a second factor is asked for at all. Recovery codes alone are none.
    pub fn is_on(&self) -> bool {
        self.totp || self.sms_phone.is_some()
    }

    pub fn names(&self) -> Vec<Factor> {
        let all = [
            (self.totp, Factor::Totp),
            (self.sms_phone.is_some(), Factor::Sms),
            (self.is_on() && self.recovery_left > 0, Factor::Recovery),
        ];
        all.into_iter().filter_map(|(is_on, factor)| is_on.then_some(factor)).collect()
    }

    /// The last digits of the phone number, which the user recognizes.
    pub fn phone_suffix(&self) -> Option<String> {
        let phone = self.sms_phone.as_ref()?;
        phone.char_indices().rev().nth(3).map(|(start, _)| phone[start..].to_owned())
    }
}

/// A typed code without its spaces: digits of an app or a phone, or a recovery code.
pub fn normal(code: &Secret) -> Secret {
    let kept = code.expose().chars().filter(char::is_ascii_alphanumeric);
    kept.map(|c| c.to_ascii_uppercase()).collect::<String>().into()
}

/// Uses up whichever of the person's factors this code proves; `None` when it proves nothing.
pub async fn prove(
    tx: &mut Tx,
    janua: &Janua,
    account: AccountId,
    code: &Secret,
    only: Option<Factor>,
) -> db::Result<Option<Factor>> {
    let code = normal(code);
    let is_short = code.expose().len() == DIGITS;
    let may_be = |factor: Factor| only.is_none_or(|only| only == factor);
    if is_short && may_be(Factor::Totp) && Totp30::spend(tx, janua, account, &code).await? {
        return Ok(Some(Factor::Totp));
    }
    if is_short && may_be(Factor::Sms) {
        let sql = "SELECT phone FROM sms_factor WHERE account_id = $1";
        let phone: Option<(String,)> = tx.opt(sql, params![account]).await?;
        let now = janua.clock.now();
        if phone.is_some() && once::spend_code(tx, janua, sms::SIGN_IN, account, &code, now).await?.is_some() {
            return Ok(Some(Factor::Sms));
        }
    }
    if !is_short && may_be(Factor::Recovery) && spend_recovery(tx, janua, account, &code).await? {
        return Ok(Some(Factor::Recovery));
    }
    Ok(None)
}

/// Time-based codes as every authenticator app makes them: SHA-1, six digits, thirty seconds (RFC 6238).
pub struct Totp30(Totp);

struct Sealed {
    sealed: Option<Vec<u8>>,
}
row!(Sealed { sealed });

impl Totp30 {
    fn new(secret: &[u8], issuer: &str, person: &str) -> Option<Self> {
        // The library's own defaults are the ones every app has. A colon parts the names in the address.
        let (issuer, person) = (issuer.replace(':', " "), person.replace(':', " "));
        let builder = Builder::new().with_secret(secret.to_vec()).with_issuer(Some(issuer)).with_account_name(person);
        builder.build().ok().map(Self)
    }

    fn address(&self) -> String {
        self.0.to_url().unwrap_or_default()
    }

    /// The step whose code this is: the present one, the one before or the one after.
    fn step_of(&self, code: &Secret, now: Timestamp) -> Option<i64> {
        let step = self.0.check(code.expose(), u64::try_from(now.0 / 1000).ok()?)?;
        i64::try_from(step).ok()
    }

    /// A new secret, which counts for nothing before its first code; as people type it, and as an app reads it.
    pub async fn set_up(
        tx: &mut Tx,
        janua: &Janua,
        account: AccountId,
        person: &str,
    ) -> db::Result<(String, String)> {
        let secret: [u8; SECRET_BYTES] = janua.entropy.bytes();
        let sealed = janua.vault.seal("totp", &place(account), &secret);
        tx.exec(
            "INSERT INTO totp_factor (account_id, pending, last_step) VALUES ($1, $2, 0)
             ON CONFLICT (account_id) DO UPDATE SET pending = $2",
            params![account, sealed],
        )
        .await?;
        let address = Self::new(&secret, &issuer(janua), person).map(|totp| totp.address()).unwrap_or_default();
        Ok((BASE32_NOPAD.encode(&secret), address))
    }

    /// Switches the pending secret on when this is a code of it.
    pub async fn enable(tx: &mut Tx, janua: &Janua, account: AccountId, code: &Secret) -> db::Result<Option<bool>> {
        let sql = "SELECT pending AS sealed FROM totp_factor WHERE account_id = $1";
        let found = tx.opt::<Sealed>(sql, params![account]).await?.and_then(|row| row.sealed);
        let Some(pending) = found else { return Ok(None) };
        let now = janua.clock.now();
        let step = Self::opened(janua, account, &pending).and_then(|totp| totp.step_of(&normal(code), now));
        let Some(step) = step else { return Ok(Some(false)) };
        let switched = tx
            .exec(
                "UPDATE totp_factor SET sealed = $2, pending = NULL, last_step = $3, enabled_at = $4
                 WHERE account_id = $1 AND pending = $2",
                params![account, pending, step, now],
            )
            .await?;
        Ok(Some(switched == 1))
    }

    /// Accepts a code of the active secret, its step once and none before it again.
    async fn spend(tx: &mut Tx, janua: &Janua, account: AccountId, code: &Secret) -> db::Result<bool> {
        let sql = "SELECT sealed FROM totp_factor WHERE account_id = $1 AND enabled_at IS NOT NULL";
        let found = tx.opt::<Sealed>(sql, params![account]).await?.and_then(|row| row.sealed);
        let totp = found.and_then(|sealed| Self::opened(janua, account, &sealed));
        let Some(step) = totp.and_then(|totp| totp.step_of(code, janua.clock.now())) else { return Ok(false) };
        let sql = "UPDATE totp_factor SET last_step = $2 WHERE account_id = $1 AND last_step < $2";
        Ok(tx.exec(sql, params![account, step]).await? == 1)
    }

    fn opened(janua: &Janua, account: AccountId, sealed: &[u8]) -> Option<Self> {
        let secret = janua.vault.open("totp", &place(account), sealed).ok()?;
        Self::new(&secret, &issuer(janua), "")
    }
}

fn place(account: AccountId) -> String {
    format!("totp_factor:sealed:{account}")
}

/// The name that an authenticator app shows beside the code.
fn issuer(janua: &Janua) -> String {
    let url = janua.config.base_url();
    let host = url.split("://").nth(1).and_then(|rest| rest.split([':', '/']).next());
    host.unwrap_or("Janua").to_owned()
}

/// Takes a factor away; `false` when it was not there. Recovery codes go with the last one.
pub async fn remove(tx: &mut Tx, account: AccountId, factor: Factor) -> db::Result<bool> {
    let sql = match factor {
        Factor::Totp => "DELETE FROM totp_factor WHERE account_id = $1 AND enabled_at IS NOT NULL",
        Factor::Sms => "DELETE FROM sms_factor WHERE account_id = $1",
        Factor::Recovery => "DELETE FROM recovery_code WHERE account_id = $1",
    };
    let was_there = tx.exec(sql, params![account]).await? > 0;
    if !Factors::of(&mut *tx, account).await?.is_on() {
        remove_recovery_codes(tx, account).await?;
    }
    Ok(was_there)
}

/// The phone that proved itself, in place of any other.
pub async fn set_phone(tx: &mut Tx, account: AccountId, phone: &str, now: Timestamp) -> db::Result<()> {
    tx.exec(
        "INSERT INTO sms_factor (account_id, phone, enabled_at) VALUES ($1, $2, $3)
         ON CONFLICT (account_id) DO UPDATE SET phone = $2, enabled_at = $3",
        params![account, phone, now],
    )
    .await?;
    Ok(())
}

/// New codes in place of all that were there; this is the only time they are seen.
pub async fn new_recovery_codes(tx: &mut Tx, janua: &Janua, account: AccountId) -> db::Result<Vec<String>> {
    remove_recovery_codes(tx, account).await?;
    let mut codes = vec![];
    for _ in 0..RECOVERY_CODES {
        let code = BASE32_NOPAD.encode(&janua.entropy.bytes::<RECOVERY_BYTES>());
        let sql = "INSERT INTO recovery_code (hash, account_id, created_at) VALUES ($1, $2, $3)";
        tx.exec(sql, params![recovery_hash(account, &code), account, janua.clock.now()]).await?;
        // In groups of four, for people who write them down.
        let groups: Vec<&str> = (0..code.len()).step_by(4).map(|start| &code[start..start + 4]).collect();
        codes.push(groups.join("-"));
    }
    Ok(codes)
}

async fn remove_recovery_codes(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    tx.exec("DELETE FROM recovery_code WHERE account_id = $1", params![account]).await?;
    Ok(())
}

async fn spend_recovery(tx: &mut Tx, janua: &Janua, account: AccountId, code: &Secret) -> db::Result<bool> {
    let hash = recovery_hash(account, code.expose());
    let sql = "UPDATE recovery_code SET used_at = $3 WHERE hash = $1 AND account_id = $2 AND used_at IS NULL";
    Ok(tx.exec(sql, params![hash, account, janua.clock.now()]).await? == 1)
}

/// Eighty bits of chance need no slow hash.
fn recovery_hash(account: AccountId, code: &str) -> String {
    crypto::hash(format!("recovery\n{account}\n{code}").as_bytes())
}

/// Remembers a device on which the second factor was proven; what is answered goes into its cookie. One that was trusted in
/// an app's sign-in is trusted there alone.
pub async fn trust_device(
    tx: &mut Tx,
    janua: &Janua,
    account: AccountId,
    visitor: &Visitor,
    through: Option<ApplicationId>,
) -> db::Result<(Secret, Duration)> {
    let (token, now) = (janua.entropy.token(), janua.clock.now());
    tx.exec(
        "INSERT INTO trusted_device (hash, account_id, created_at, expires_at, id, user_agent, ip, app_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        params![
            crypto::hash(token.expose().as_bytes()),
            account,
            now,
            now.plus(TRUSTED),
            Id::<TrustedDevice>::new(&janua.entropy, now),
            &visitor.user_agent,
            visitor.client.address.to_string(),
            through
        ],
    )
    .await?;
    Ok((token, TRUSTED))
}

/// A device that is not asked for a second factor.
#[derive(Debug)]
pub struct TrustedDevice {
    hash: String,
    pub id: String,
    pub user_agent: String,
    pub ip: String,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}
row!(TrustedDevice { hash, id, user_agent, ip, created_at, last_used_at, expires_at });

impl TrustedDevice {
    /// Newest first. One that was trusted before devices had ids is named by its hash.
    pub async fn of(db: &Db, account: AccountId, now: Timestamp) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT hash, CASE WHEN id = '' THEN hash ELSE id END AS id, user_agent, ip, created_at, last_used_at,
                    expires_at
             FROM trusted_device WHERE account_id = $1 AND expires_at > $2
             ORDER BY created_at DESC, hash LIMIT 200",
            params![account, now],
        )
        .await
    }

    /// Whether this is the device with this mark.
    pub fn bears(&self, mark: &Secret) -> bool {
        crypto::same(self.hash.as_bytes(), crypto::hash(mark.expose().as_bytes()).as_bytes())
    }

    /// Asks for a second factor there from now on; answers what the device called itself, or nothing when the person has no
    /// such device.
    pub async fn remove(tx: &mut Tx, account: AccountId, id: &str) -> db::Result<Option<String>> {
        let sql = "DELETE FROM trusted_device WHERE account_id = $1 AND (id = $2 OR (id = '' AND hash = $2))
                   RETURNING user_agent";
        let removed: Vec<(String,)> = tx.put(sql, params![account, id]).await?;
        Ok(removed.into_iter().next().map(|(user_agent,)| user_agent))
    }
}

/// Whether the device is trusted with this account; notes its use.
pub async fn use_trusted(
    tx: &mut Tx,
    janua: &Janua,
    account: AccountId,
    token: &Secret,
    visitor: &Visitor,
) -> db::Result<bool> {
    let sql = "UPDATE trusted_device SET last_used_at = $3, ip = $4
               WHERE hash = $1 AND account_id = $2 AND expires_at > $3 AND COALESCE(app_id, $5) = $5";
    let hash = crypto::hash(token.expose().as_bytes());
    let ip = visitor.client.address.to_string();
    Ok(tx.exec(sql, params![hash, account, janua.clock.now(), ip, visitor.through()]).await? == 1)
}

/// Whether the visitor's device is trusted with the account of an email.
pub async fn is_trusted_by(janua: &Janua, email: &Email, token: &Secret, visitor: &Visitor) -> db::Result<bool> {
    let sql = "SELECT trusted_device.hash FROM trusted_device JOIN account ON account.id = trusted_device.account_id
               WHERE trusted_device.hash = $1 AND account.email_key = $2 AND trusted_device.expires_at > $3
                 AND COALESCE(trusted_device.app_id, $4) = $4";
    let hash = crypto::hash(token.expose().as_bytes());
    let params = params![hash, email.key(), janua.clock.now(), visitor.through()];
    Ok(janua.db.opt::<(String,)>(sql, params).await?.is_some())
}

/// A sign-in that waits for its second factor.
pub const MFA_TICKET: Purpose = Purpose::new("mfa_ticket", Duration::from_mins(10));

/// A code sent to a phone to prove that it is the person's.
pub const SMS_ENROLL: Purpose = Purpose::new("sms_enroll", Duration::from_mins(5));
/// A challenge that a new passkey signs.
pub const PASSKEY_REGISTER: Purpose = Purpose::new("passkey_register", Duration::from_mins(5));

/// Ends what was begun and not finished, with a factor or to add one: a sign-in that waits for its second factor, a code on
/// its way to a phone, a secret for an app, a challenge for a passkey. It was begun with what no longer counts.
pub async fn void_open(tx: &mut Tx, account: AccountId, now: Timestamp) -> db::Result<()> {
    let purposes = [MFA_TICKET, sms::SIGN_IN, SMS_ENROLL, PASSKEY_REGISTER];
    for purpose in purposes {
        once::void(tx, purpose, account, now).await?;
    }
    let sql = "UPDATE totp_factor SET pending = NULL WHERE account_id = $1 AND pending IS NOT NULL";
    tx.exec(sql, params![account]).await.map(drop)
}

/// A changed password or factor makes every device a stranger again. Answers how many there were.
pub async fn distrust_devices(tx: &mut Tx, account: AccountId) -> db::Result<u64> {
    tx.exec("DELETE FROM trusted_device WHERE account_id = $1", params![account]).await
}
