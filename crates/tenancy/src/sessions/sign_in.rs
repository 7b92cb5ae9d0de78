//! The one place where a session begins.
//!
//! Every way to sign in ends in [`enter`](fn@enter), which is the gate of the second factor: no session exists before
//! it. Only [`pass`], with a ticket of the gate and a factor that was proven, leads around it.
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Result, UNAUTHENTICATED},
};
use serde::{Deserialize, Serialize};

pub use super::answers::{CompletedSignIn, Entered, MayEnter, MfaChallenge, SignedIn, Typed, UserView, renew};

use crate::{
    accounts::{
        Account, HeldAccount,
        factors::{self, Factors},
    },
    apps::{Application, Greeting, end_users, scopes::Scopes},
    enter::{self, Delivery, Visitor},
    events::{self, happenings},
    ids::{AccountId, ApplicationId, Factor, Role, SessionId},
    messages::{
        mail::{self, Letter, Mail, NOT_YOU, Origin, SECURE, Sample},
        sms::{self, Phone},
    },
    once::{self, Spent},
    orgs::{Membership, members::OrgMember, people},
    sessions::{Proof, StoredSession, audience::Audience, device_name},
};

/// Answered only after a proof of identity.
pub const ACCOUNT_CLOSED: Code = Code::new(403, "account_closed", "Your organization has disabled this account.");

/// Answered only after a proof of identity, as the codes above and below.
pub const ACCOUNT_DISABLED: Code =
    Code::new(403, "account_disabled", "This account is disabled. Contact the people who run this service.");
pub const BLOCKED_FROM_APP: Code =
    Code::new(403, "blocked_from_app", "You are blocked from this app. Contact the app's team.");

/// The refusal of an account that its organization has switched off, or a platform owner has disabled.
async fn refusal(tx: &mut Tx, account: &Account) -> db::Result<Option<Code>> {
    if account.disabled_at.is_some() {
        return Ok(Some(ACCOUNT_DISABLED));
    }
    Ok(people::is_closed(tx, account.id).await?.then_some(ACCOUNT_CLOSED))
}

/// Why a session that ended does not go on, where that is more than its end. For clients that hold its refresh token.
pub async fn refusal_of_ended(tx: &mut Tx, id: SessionId) -> db::Result<Option<Code>> {
    let Some(session) = StoredSession::find(&mut *tx, id).await? else { return Ok(None) };
    let Some(account) = Account::find(tx, session.account_id).await? else { return Ok(None) };
    if account.disabled_at.is_some() {
        return Ok(Some(ACCOUNT_DISABLED));
    }
    let is_blocked = match session.app_id {
        Some(app) => end_users::is_blocked(&mut *tx, app, account.id).await?,
        None => false,
    };
    Ok(is_blocked.then_some(BLOCKED_FROM_APP))
}

/// How a user proved who they are, and what the session is for.
pub struct SignInMethod<'a> {
    /// The method of the proof (`pwd`, `mail`, …).
    pub method: &'a str,
    /// The mark with which it passes the gate, if it does: `mfa` for a proof of two factors at once, such as a
    /// passkey that verified a finger or a PIN; `trusted` for a device that was approved from a trusted one.
    pub gate_mark: Option<&'static str>,
    /// When they proved it, where that was not just now.
    pub since: Option<Timestamp>,
    pub delivery: Delivery,
    /// The scopes granted to the client of the sign-in, where they are limited.
    pub scopes: Option<Scopes>,
}

impl<'a> SignInMethod<'a> {
    /// One factor.
    pub fn by(method: &'a str, delivery: Delivery) -> Self {
        Self { method, gate_mark: None, since: None, delivery, scopes: None }
    }
}

/// The value stored with a ticket.
#[derive(Serialize, Deserialize)]
struct Pending {
    method: String,
    delivery: Delivery,
    #[serde(default)]
    app: Option<ApplicationId>,
}

impl Pending {
    fn of(janua: &Janua, ticket: &Spent) -> Option<Self> {
        serde_json::from_slice(&ticket.aside(janua)?).ok()
    }
}

/// The gate: begins a session, or issues a ticket for a user who still has to prove a second factor. The account is
/// locked meanwhile: a transaction that ends sessions, changes a password or switches a factor on comes before or
/// after.
pub async fn enter(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    account: Account,
    way: SignInMethod<'_>,
) -> Result<Entered> {
    let held = Account::hold(tx, account.id).await?.ok_or(UNAUTHENTICATED)?;
    enter_held(tx, janua, visitor, held, way).await
}

/// The gate for callers that have locked the account in this transaction already.
pub async fn enter_held(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    HeldAccount(account): HeldAccount,
    way: SignInMethod<'_>,
) -> Result<Entered> {
    if let Some(code) = refusal(tx, &account).await? {
        return Ok(Entered::Refused(code));
    }
    let factors = Factors::of(&mut *tx, account.id).await?;
    let is_trusted = match &visitor.trusted_device {
        Some(token) if factors.is_on() => factors::use_trusted(tx, janua, account.id, token, visitor).await?,
        _ => false,
    };
    let mark = way.gate_mark.or(is_trusted.then_some("trusted"));
    if !factors.is_on() || mark.is_some() {
        let methods = std::iter::once(way.method).chain(mark).map(str::to_owned).collect();
        let proof = match way.method {
            "pwd" => Some(Proof::Password),
            "passkey" => Some(Proof::Passkey),
            _ => None,
        };
        let beginning = Beginning {
            methods,
            proof,
            app_id: visitor.app.as_ref().map(|keyed| keyed.app_id),
            since: way.since,
            scopes: way.scopes,
            ..Beginning::at(visitor)
        };
        let (session, org) = match begin(tx, janua, visitor, &account, beginning).await? {
            Begun::In(begun) => *begun,
            Begun::Blocked => return Ok(Entered::Refused(BLOCKED_FROM_APP)),
            Begun::AppGone => return Err(enter::INVALID_APP_KEY.into()),
        };
        let delivery = way.delivery;
        return Ok(Entered::In(Box::new(CompletedSignIn {
            account,
            factors,
            session,
            org,
            delivery,
            trusted: None,
        })));
    }
    // Nothing else can be proven, so the code is on its way before it is asked for.
    if let Some(phone) = factors.sms_phone.as_deref().filter(|_| !factors.totp).and_then(Phone::parse) {
        sms::send_code(tx, janua, visitor, account.id, &phone, sms::SIGN_IN).await?;
    }
    let through = visitor.app.as_ref().map(|keyed| keyed.app_id);
    let pending = Pending { method: way.method.to_owned(), delivery: way.delivery, app: through };
    let aside = serde_json::to_vec(&pending).unwrap_or_default();
    let ticket = once::issue(tx, janua, factors::MFA_TICKET, Some(account.id), &aside).await?;
    events::watch::tell(tx, janua, through, Some(account.id), events::watch::What::SecondFactorAsked).await?;
    db::answer_opens_account();
    Ok(Entered::Waiting(MfaChallenge {
        requires_mfa: true,
        mfa_ticket: ticket.expose().to_owned(),
        factors: factors.names(),
        sms_phone_suffix: factors.phone_suffix(),
    }))
}

/// The account of a ticket. With the key of another app the ticket is refused like an unknown one. The session
/// belongs to the app that the ticket was issued for, also without a key.
pub fn holder_of(janua: &Janua, visitor: &Visitor, ticket: &Spent) -> Option<AccountId> {
    let pending = Pending::of(janua, ticket)?;
    let is_meant = visitor.app.as_ref().is_none_or(|keyed| pending.app == Some(keyed.app_id));
    ticket.account_id.filter(|_| is_meant)
}

/// Begins a session behind the gate: the caller spent the ticket and checked the factor in this transaction. Refuses
/// accounts that were closed, and apps that were deleted, since the ticket was issued.
pub async fn pass(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    account: Account,
    ticket: &Spent,
    factor: Factor,
    trust_device: bool,
) -> Result<Option<Entered>> {
    let Some(pending) = Pending::of(janua, ticket) else { return Ok(None) };
    let Some(HeldAccount(account)) = Account::hold(tx, account.id).await? else { return Ok(None) };
    if let Some(code) = refusal(tx, &account).await? {
        return Ok(Some(Entered::Refused(code)));
    }
    let methods = vec![pending.method, factor.method().to_owned(), "mfa".to_owned()];
    let proof = Some(Proof::Factor(factor));
    let beginning = Beginning { methods, proof, app_id: pending.app, ..Beginning::at(visitor) };
    let (session, org) = match begin(tx, janua, visitor, &account, beginning).await? {
        Begun::In(begun) => *begun,
        Begun::Blocked => return Ok(Some(Entered::Refused(BLOCKED_FROM_APP))),
        Begun::AppGone => return Ok(None),
    };
    let trusted = if trust_device {
        Some(factors::trust_device(tx, janua, account.id, visitor, pending.app).await?)
    } else {
        None
    };
    let factors = Factors::of(&mut *tx, account.id).await?;
    let delivery = pending.delivery;
    Ok(Some(Entered::In(Box::new(CompletedSignIn { account, factors, session, org, delivery, trusted }))))
}

/// The access that a user grants to a client.
pub struct Grant {
    pub app_id: Option<ApplicationId>,
    /// The id of a client that is no app.
    pub client: Option<String>,
    pub scopes: Scopes,
    /// Where its tokens count, if not here.
    pub resource: Option<Audience>,
}

/// Around the gate, too: a client's own session, on the word of the one in which the person let it in.
pub async fn grant(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    from: SessionId,
    grant: Grant,
) -> Result<Option<Entered>> {
    let Some(before) = StoredSession::find(&mut *tx, from).await? else { return Ok(None) };
    let Some(HeldAccount(account)) = Account::hold(tx, before.account_id).await? else { return Ok(None) };
    if let Some(code) = refusal(tx, &account).await? {
        return Ok(Some(Entered::Refused(code)));
    }
    // Looked at again, now that nobody can end it meanwhile; and what began before there was a second factor is too weak.
    let from = StoredSession::find(&mut *tx, from).await?.filter(|from| from.is_alive(janua.clock.now()));
    let Some(from) = from else { return Ok(None) };
    let factors = Factors::of(&mut *tx, account.id).await?;
    if factors.is_on() && !from.is_strong() {
        return Ok(None);
    }
    let beginning = Beginning {
        methods: from.methods.clone(),
        proof: None,
        since: Some(from.authenticated_at),
        app_id: grant.app_id,
        client: grant.client,
        scopes: Some(grant.scopes),
        resource: grant.resource,
        // The person sits there, not where the client's server stands.
        user_agent: from.user_agent.clone(),
        ip: from.ip.clone(),
    };
    let (session, org) = match begin(tx, janua, visitor, &account, beginning).await? {
        Begun::In(begun) => *begun,
        Begun::Blocked => return Ok(Some(Entered::Refused(BLOCKED_FROM_APP))),
        Begun::AppGone => return Ok(None),
    };
    let delivery = Delivery::Body;
    Ok(Some(Entered::In(Box::new(CompletedSignIn { account, factors, session, org, delivery, trusted: None }))))
}

/// How a session begins.
#[derive(Default)]
struct Beginning {
    methods: Vec<String>,
    /// The proof of this sign-in, or of `since`.
    proof: Option<Proof>,
    since: Option<Timestamp>,
    app_id: Option<ApplicationId>,
    client: Option<String>,
    scopes: Option<Scopes>,
    resource: Option<Audience>,
    user_agent: String,
    ip: String,
}

impl Beginning {
    fn at(visitor: &Visitor) -> Self {
        let (user_agent, ip) = (visitor.user_agent.clone(), visitor.client.address.to_string());
        Self { user_agent, ip, ..Self::default() }
    }
}

/// The outcome of beginning a session.
enum Begun {
    In(Box<(StoredSession, Option<Membership>)>),
    /// The app has blocked the person.
    Blocked,
    AppGone,
}

/// Adds a user who signs in to the service itself to the organization that accepts members by the domain of their
/// email.
async fn join_by_domain(tx: &mut Tx, janua: &Janua, visitor: &Visitor, account: &Account) -> Result<()> {
    let Some(org) = OrgMember::join_by_domain(tx, janua, account).await? else { return Ok(()) };
    let domain = account.email_key.as_deref().and_then(|key| key.rsplit_once('@')).map_or("", |(_, host)| host);
    let event = happenings::MemberJoined { role: Role::Member, domain: domain.to_owned() };
    let by = events::By { actor: Some(account.id), ..visitor.by.clone() };
    Ok(events::record(tx, janua, &by, events::About::in_org(org).person(account.id), &event).await?)
}

/// Creates the session, records the sign-in, and mails the user when the device is new. A session of a deleted app
/// does not begin.
async fn begin(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    account: &Account,
    beginning: Beginning,
) -> Result<Begun> {
    let (now, app_id) = (janua.clock.now(), beginning.app_id);
    if app_id.is_none() && beginning.client.is_none() {
        join_by_domain(tx, janua, visitor, account).await?;
    }
    let org = Membership::active(tx, account.id).await?;
    if let Some(id) = app_id {
        match Application::greet(tx, janua, id, account.id, beginning.scopes.as_ref()).await? {
            Greeting::Welcome => {}
            Greeting::Blocked => return Ok(Begun::Blocked),
            Greeting::AppGone => return Ok(Begun::AppGone),
        }
    }
    let device = device_name(&beginning.user_agent);
    let proven_at = beginning.since.unwrap_or(now);
    let mut session = StoredSession {
        id: SessionId::new(&janua.entropy, now),
        account_id: account.id,
        generation: 0,
        rotated_at: now,
        created_at: now,
        authenticated_at: proven_at,
        password_at: matches!(beginning.proof, Some(Proof::Password)).then_some(proven_at),
        factor_at: matches!(beginning.proof, Some(Proof::Factor(_))).then_some(proven_at),
        passkey_at: matches!(beginning.proof, Some(Proof::Passkey)).then_some(proven_at),
        last_seen_at: now,
        expires_at: now.plus(janua.config.of::<crate::Settings>().session_idle_life),
        ends_at: now.plus(janua.config.of::<crate::Settings>().session_life),
        methods: beginning.methods,
        device: device.clone(),
        user_agent: beginning.user_agent,
        ip: beginning.ip,
        revoked_at: None,
        org_id: org.as_ref().map(|membership| membership.org.id),
        app_id,
        client: beginning.client,
        scopes: beginning.scopes,
        resource: beginning.resource,
    };
    if !session.may_go_on() {
        session.ends_at = now.plus(janua.config.of::<crate::Settings>().access_token_life);
        session.expires_at = session.ends_at;
    }
    let (was_here, on_this_device) = StoredSession::knows_device(tx, account.id, &device).await?;
    session.insert(tx).await?;
    let by = events::By { actor: Some(account.id), app: app_id, ..visitor.by.clone() };
    let event =
        happenings::SignedIn { session_id: session.id, methods: session.methods.clone(), device: device.clone() };
    events::record(tx, janua, &by, Some(account.id), &event).await?;
    if let Some(email) = account.email.as_deref().filter(|_| was_here && !on_this_device) {
        let origin = Origin { at: now, device: Some(device), ip: Some(session.ip.clone()) };
        let letter = NewDevice { name: account.name.clone(), origin };
        mail::send_for(tx, janua, app_id, email, &letter).await?;
    }
    Ok(Begun::In(Box::new((session, org))))
}

pub(crate) const MAILS: &[Sample] =
    &[Sample(|| Box::new(NewDevice { name: "Ada".into(), origin: Origin::sample() }))];

struct NewDevice {
    name: String,
    origin: Origin,
}

impl Mail for NewDevice {
    fn name(&self) -> &'static str {
        "new_device"
    }

    fn letter(&self) -> Letter {
        let before = "Your account was used to sign in to {service} on a new device.";
        Letter::new("New sign-in to your account", before, NOT_YOU)
            .to(&self.name)
            .origin(&self.origin)
            .button(SECURE.0, SECURE.1)
    }
}
