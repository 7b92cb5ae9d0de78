//! What somebody asked for at the door, worked on later.
//!
//! Sign-up, a forgotten password, a sign-in link and another confirmation mail are answered alike and in the same time
//! whether or not the address has an account: the answer is given before anybody has looked. A wrong password is
//! written down this way too.
use data_encoding::BASE64;
use db::Tx;
use kernel::{
    Janua,
    fault::Result,
    http::network_of,
    jobs::{self, Job, Later},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId},
    apps::ApplicationId,
    email::Email,
    enter::Visitor,
    events::{self, By},
    messages::mail::{self, Budget, Origin, Warning},
    once,
    sessions::StoredSession,
};

use crate::{
    destination::Destination,
    events::{AccountCreated, MagicLinkRequested, PasswordResetRequested, SignInFailed, SignInLocked},
    magic_link::MAGIC_LINK,
    mails,
    password::RESET_PASSWORD,
    register::{CODE_LIFE, VERIFY_EMAIL},
};

/// The answer to every request for a mail.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Accepted {
    /// The request was accepted. A mail is sent if the email has an account.
    pub accepted: bool,
}

/// The request as it waits: sealed, because it may hold a password's hash.
#[derive(Serialize, Deserialize)]
pub struct Asked {
    sealed: String,
}

#[derive(Serialize, Deserialize)]
pub struct Request {
    pub email: String,
    pub what: What,
    ip: Option<String>,
    user_agent: Option<String>,
    #[serde(default)]
    app_id: Option<ApplicationId>,
    #[serde(default)]
    destination: Destination,
}

#[derive(Serialize, Deserialize)]
pub enum What {
    Register {
        name: String,
        password_hash: String,
        accepts_marketing: bool,
        #[serde(default)]
        likeness: Option<String>,
    },
    ResendVerification,
    ForgotPassword,
    MagicLink,
    /// A wrong password; after the last one that counts no more are tried for a while.
    WrongPassword {
        is_last: bool,
    },
}

/// The sign-up that a link confirms. Its name and password stand in the account; here they tell one sign-up from another.
#[derive(Serialize, Deserialize)]
pub struct Registration {
    pub name: String,
    /// None when it is not certain whose password it would be.
    pub password_hash: Option<String>,
    /// A keyed digest by which the same password is known again. It lies sealed, and goes with the link.
    #[serde(default)]
    pub likeness: Option<String>,
    #[serde(default)]
    pub destination: Destination,
}

const PURPOSE: &str = "asked";
const PLACE: &str = "job:payload";

/// Takes a request in.
pub async fn take(
    janua: &Janua,
    visitor: &Visitor,
    email: &Email,
    what: What,
    destination: Destination,
) -> Result<Accepted> {
    keep(janua, visitor, email, what, destination).await?;
    Ok(Accepted { accepted: true })
}

/// Keeps it for later.
pub async fn keep(
    janua: &Janua,
    visitor: &Visitor,
    email: &Email,
    what: What,
    destination: Destination,
) -> Result<()> {
    let By { ip, user_agent, app: app_id, .. } = visitor.by.clone();
    let request = Request { email: email.as_str().to_owned(), what, ip, user_agent, app_id, destination };
    let plain = serde_json::to_vec(&request).unwrap_or_default();
    let job = Asked { sealed: BASE64.encode(&janua.vault.seal(PURPOSE, PLACE, &plain)) };
    transact!(janua, async |tx| {
        jobs::enqueue(tx, janua, janua.clock.now(), &job).await?;
        Ok(())
    })
}

impl Job for Asked {
    const KIND: &'static str = "identity.asked";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let sealed = BASE64.decode(self.sealed.as_bytes()).map_err(Later::give_up)?;
        let plain = janua.vault.open(PURPOSE, PLACE, &sealed).map_err(Later::give_up)?;
        let request: Request = serde_json::from_slice(&plain).map_err(Later::give_up)?;
        let email = Email::parse(&request.email).ok_or_else(|| Later::give_up("the email cannot be read"))?;
        let budget = budget(&janua, &request, &email).await?;
        db::transact!(janua.db, async |tx| work(tx, &janua, &request, &email, &budget).await)?;
        Ok(())
    }
}

/// What a mail counts against that was asked for from here.
async fn budget(janua: &Janua, request: &Request, email: &Email) -> db::Result<Budget> {
    let Some(ip) = request.ip.as_deref().and_then(|ip| ip.parse().ok()) else {
        return Ok(Budget::Anybody { from: String::new() });
    };
    let (network, from) = (network_of(ip), network_of(ip).to_string());
    let is_known = StoredSession::knows_network(&janua.db, email.key(), network).await?;
    Ok(if is_known { Budget::Known { from } } else { Budget::Anybody { from } })
}

/// What a mail may call the reader: nothing, until they have proven that the email is theirs. The name may be a stranger's
/// words.
fn called(account: &Account) -> String {
    if account.email_verified { account.name.clone() } else { String::new() }
}

async fn work(tx: &mut Tx, janua: &Janua, request: &Request, email: &Email, budget: &Budget) -> db::Result<()> {
    let (ip, user_agent) = (request.ip.clone(), request.user_agent.clone());
    let by = By { ip, user_agent, app: request.app_id, ..By::default() };
    let sender = request.destination.app.or(request.app_id);
    if let What::Register { name, password_hash, accepts_marketing, likeness } = &request.what {
        let (password_hash, likeness) = (Some(password_hash.clone()), likeness.clone());
        let destination = request.destination.clone();
        let registration = Registration { name: name.clone(), password_hash, likeness, destination };
        return register(tx, janua, &by, sender, (email, budget), registration, *accepts_marketing).await;
    }
    let Some(account) = Account::by_email(&mut *tx, email).await? else { return Ok(()) };
    let to = account.email.clone().unwrap_or_default();
    let (name, now) = (called(&account), janua.clock.now());
    let origin = Origin::new(&by, now);
    let proven = account.email_verified.then(|| origin.clone());
    match &request.what {
        What::WrongPassword { is_last } => {
            let failed = SignInFailed { reason: "wrong_password" };
            events::record(tx, janua, &by, Some(account.id), &failed).await?;
            if *is_last {
                events::record(tx, janua, &by, Some(account.id), &SignInLocked).await?;
                if mail::may_send(tx, janua, email, &Budget::Warning(Warning::Locked)).await? {
                    mail::send(tx, janua, &to, &mails::Locked { name, origin }).await?;
                }
            }
            Ok(())
        }
        What::ResendVerification if !account.email_verified => {
            let before = pending(tx, janua, &account).await?.pop().flatten();
            let (likeness, before) = before.map_or_else(Default::default, |open| (open.likeness, open.destination));
            let destination = if request.destination.is_empty() { before } else { request.destination.clone() };
            let (name, password_hash) = (account.name.clone(), account.password_hash.clone());
            let sender = destination.app.or(sender);
            let registration = Registration { name, password_hash, likeness, destination };
            send_verification(tx, janua, sender, &account, (email, budget), &registration).await
        }
        What::ForgotPassword if mail::may_send(tx, janua, email, budget).await? => {
            once::make_room(tx, RESET_PASSWORD, account.id, now).await?;
            let token =
                once::issue(tx, janua, RESET_PASSWORD, Some(account.id), &request.destination.aside()).await?;
            events::record(tx, janua, &by, Some(account.id), &PasswordResetRequested).await?;
            mail::send_for(tx, janua, sender, &to, &mails::ResetPassword { name, token, origin: proven }).await
        }
        What::MagicLink if mail::may_send(tx, janua, email, budget).await? => {
            once::make_room(tx, MAGIC_LINK, account.id, now).await?;
            let token = once::issue(tx, janua, MAGIC_LINK, Some(account.id), &request.destination.aside()).await?;
            events::record(tx, janua, &by, Some(account.id), &MagicLinkRequested).await?;
            mail::send_for(tx, janua, sender, &to, &mails::MagicLink { name, token, origin: proven }).await
        }
        What::ResendVerification | What::Register { .. } | What::ForgotPassword | What::MagicLink => Ok(()),
    }
}

async fn register(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    sender: Option<ApplicationId>,
    (email, budget): (&Email, &Budget),
    registration: Registration,
    accepts_marketing: bool,
) -> db::Result<()> {
    let now = janua.clock.now();
    let new = Account {
        password_hash: registration.password_hash.clone(),
        accepts_marketing,
        ..Account::new(AccountId::new(&janua.entropy, now), Some(email), &registration.name, now)
    };
    let (account, is_new) = Account::ensure(tx, &new).await?;
    if account.email_verified {
        let warning = mails::AlreadyRegistered { name: account.name.clone() };
        if mail::may_send(tx, janua, email, &Budget::Warning(Warning::AlreadyRegistered)).await? {
            mail::send_for(tx, janua, sender, email.as_str(), &warning).await?;
        }
        return Ok(());
    }
    if is_new {
        events::record(tx, janua, by, Some(account.id), &AccountCreated).await?;
    } else if Account::is_established(tx, account.id).await? {
        // The account is not this sign-up's: the mail confirms the email, and the name and the password stay.
        let Account { name, password_hash, .. } = account.clone();
        let kept = Registration { name, password_hash, likeness: None, ..registration };
        return send_verification(tx, janua, sender, &account, (email, budget), &kept).await;
    } else if pending(tx, janua, &account)
        .await?
        .iter()
        .any(|open| open.as_ref().and_then(|open| open.likeness.as_ref()) != registration.likeness.as_ref())
    {
        // Two people may have signed up with this address, and a mail does not tell them apart: no password of either
        // counts. Whoever confirms the address chooses one by a mail of its own. Who only did it twice gave the same.
        Account::clear_password(tx, account.id, now).await?;
        once::void(tx, VERIFY_EMAIL, account.id, now).await?;
        let nobodys = Registration { password_hash: None, likeness: None, ..registration };
        return send_verification(tx, janua, sender, &account, (email, budget), &nobodys).await;
    } else {
        let Registration { name, password_hash, .. } = &registration;
        Account::sign_up_again(tx, account.id, name, password_hash.as_deref(), now).await?;
    }
    send_verification(tx, janua, sender, &account, (email, budget), &registration).await
}

/// What the open links of an account would set; nothing where that cannot be read.
async fn pending(tx: &mut Tx, janua: &Janua, account: &Account) -> db::Result<Vec<Option<Registration>>> {
    let open = once::open(tx, VERIFY_EMAIL, account.id, janua.clock.now()).await?;
    let read = |open: &once::Spent| serde_json::from_slice::<Registration>(&open.aside(janua)?).ok();
    Ok(open.iter().map(read).collect())
}

async fn send_verification(
    tx: &mut Tx,
    janua: &Janua,
    app: Option<ApplicationId>,
    account: &Account,
    (email, budget): (&Email, &Budget),
    registration: &Registration,
) -> db::Result<()> {
    if !mail::may_send(tx, janua, email, budget).await? {
        return Ok(());
    }
    once::make_room(tx, VERIFY_EMAIL, account.id, janua.clock.now()).await?;
    let aside = serde_json::to_vec(registration).unwrap_or_default();
    let token = once::issue(tx, janua, VERIFY_EMAIL, Some(account.id), &aside).await?;
    let code = once::add_code(tx, janua, &token, account.id, CODE_LIFE).await?;
    let (to, name) = (account.email.as_deref().unwrap_or_default(), called(account));
    match registration.password_hash {
        Some(_) => mail::send_for(tx, janua, app, to, &mails::Verify { name, token, code }).await,
        None => mail::send_for(tx, janua, app, to, &mails::VerifyAgain { name, token, code }).await,
    }
}
