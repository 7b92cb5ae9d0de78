//! `janua admin`: rescue from the shell, while the server runs or while it is stopped. Everything is recorded in the audit
//! log with the actor `shell`, and the person is told by mail where it concerns their security.
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use identity::{
    first_owner,
    people::{LAST_PLATFORM_OWNER, acts},
};
use kernel::{Janua, clock::Timestamp, config::Config, fault::Fault, http::Key};
use tenancy::{
    accounts::{Account, HeldAccount, factors::Factors},
    email::Email,
    enter::runs_platform,
    events::{
        By,
        audit::{AuditEntry, AuditFilter},
    },
    orgs::Membership,
    sessions::StoredSession,
};

use crate::{Out, org_plan, say, start::Node};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print a new link that creates a platform owner; links printed before stop working
    OwnerLink,
    /// List the platform owners
    Owners,
    /// Make a person a platform owner
    MakeOwner {
        /// The email of an account
        email: String,
    },
    /// Make a platform owner an ordinary user
    RemoveOwner {
        /// The email of an account
        email: String,
    },
    /// Show an account, disable or enable it, reset its factors, require a new password, end its sessions
    User {
        #[command(subcommand)]
        act: UserCommand,
    },
    /// Put an organization on a plan
    #[command(subcommand)]
    Org(org_plan::Command),
}

#[derive(clap::Subcommand)]
pub enum UserCommand {
    /// Print what is known of an account
    Show { email: String },
    /// End all sessions and refuse every sign-in
    Disable { email: String },
    /// Let a disabled account sign in again
    Enable { email: String },
    /// Remove all second factors and passkeys
    ResetFactors { email: String },
    /// Remove the password and mail a link to choose another
    RequirePassword { email: String },
    /// End all sessions
    SessionsEnd { email: String },
}

pub async fn run(config: Config, command: Command) -> Result<ExitCode> {
    let node = Node::beside(config).await?;
    let janua = &node.janua;
    let said = match command {
        Command::OwnerLink => owner_link(janua).await?,
        Command::Owners => owners(janua).await?,
        Command::MakeOwner { email } => set_owner(janua, &email, true).await?,
        Command::RemoveOwner { email } => set_owner(janua, &email, false).await?,
        Command::User { act } => user(janua, act).await?,
        Command::Org(command) => org_plan::run(janua, command).await?,
    };
    say(&said, Out::Plain);
    Ok(ExitCode::SUCCESS)
}

/// Why something cannot be done, in words.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn refused(fault: Fault) -> anyhow::Error {
    if fault.code() == LAST_PLATFORM_OWNER {
        return anyhow!("this is the last platform owner; make another one first with janua admin make-owner EMAIL");
    }
    match fault.cause() {
        Some((cause, _)) => anyhow!("{} ({cause})", fault.whole_sentence()),
        None => anyhow!(fault.whole_sentence()),
    }
}

async fn owner_link(janua: &Janua) -> Result<String> {
    let link = first_owner::renew(janua).await.map_err(refused)?;
    link.context("platform_owners names the owners, so no link creates one; add an email to that setting instead")
}

async fn owners(janua: &Janua) -> Result<String> {
    let owners = db::transact!(janua.db, async |tx| acts::owners(tx, janua).await)?;
    let lines: Vec<_> =
        owners.iter().map(|owner| format!("{}  {}{}", named(owner), owner.id, state(owner))).collect();
    Ok(if lines.is_empty() { "no platform owners; run janua admin owner-link".into() } else { lines.join("\n") })
}

fn state(account: &Account) -> &'static str {
    match (account.disabled_at, account.email_verified) {
        (Some(_), _) => "  disabled",
        (None, false) => "  email not verified",
        (None, true) => "",
    }
}

fn named(account: &Account) -> String {
    format!("{} <{}>", account.name, account.email.as_deref().unwrap_or_default())
}

async fn find(janua: &Janua, email: &str) -> Result<Account> {
    let email = Email::parse(email).with_context(|| format!("{email} is not an email"))?;
    let found = Account::by_email(&janua.db, &email).await?;
    found.with_context(|| format!("no account has the email {}", email.as_str()))
}

async fn set_owner(janua: &Janua, email: &str, is_owner: bool) -> Result<String> {
    if !janua.config.of::<tenancy::Settings>().platform_owners.is_empty() {
        bail!("the setting platform_owners names the owners; change it there and restart");
    }
    let account = find(janua, email).await?;
    let by = By::shell();
    let changed = kernel::transact!(janua, async |tx| {
        let held = hold(tx, &account).await?;
        acts::set_owner(tx, janua, &by, &held, is_owner).await
    });
    Ok(match (changed.map_err(refused)?, is_owner) {
        (true, true) => format!("{} is a platform owner now", named(&account)),
        (true, false) => format!("{} is no longer a platform owner", named(&account)),
        (false, true) => format!("{} is a platform owner already; nothing changed", named(&account)),
        (false, false) => format!("{} is not a platform owner; nothing changed", named(&account)),
    })
}

async fn hold(tx: &mut db::Tx, account: &Account) -> kernel::fault::Result<HeldAccount> {
    Ok(Account::hold(tx, account.id).await?.ok_or(kernel::fault::NOT_FOUND)?)
}

async fn user(janua: &Janua, act: UserCommand) -> Result<String> {
    let by = By::shell();
    let (UserCommand::Show { email }
    | UserCommand::Disable { email }
    | UserCommand::Enable { email }
    | UserCommand::ResetFactors { email }
    | UserCommand::RequirePassword { email }
    | UserCommand::SessionsEnd { email }) = &act;
    let account = find(janua, email).await?;
    let person = named(&account);
    let done = kernel::transact!(janua, async |tx| {
        let held = hold(tx, &account).await?;
        Ok(Some(match act {
            UserCommand::Show { .. } => return Ok(None),
            UserCommand::Disable { .. } if acts::disable(tx, janua, &by, &held).await? => {
                "is disabled; all sessions were ended"
            }
            UserCommand::Disable { .. } => "was disabled before; nothing changed",
            UserCommand::Enable { .. } if acts::enable(tx, janua, &by, &held).await? => "is enabled again",
            UserCommand::Enable { .. } => "was not disabled; nothing changed",
            UserCommand::ResetFactors { .. } => {
                acts::reset_factors(tx, janua, &by, &held).await?;
                "has no second factors and passkeys any more; all sessions were ended"
            }
            UserCommand::RequirePassword { .. } => {
                acts::require_password(tx, janua, &by, &held).await?;
                "has no password any more and gets a mail to choose one; all sessions were ended"
            }
            UserCommand::SessionsEnd { .. } => {
                acts::end_sessions(tx, janua, &by, &held).await?;
                "has no sessions any more"
            }
        }))
    });
    match done.map_err(refused)? {
        Some(done) => Ok(format!("{person} {done}")),
        None => show(janua, &account).await,
    }
}

/// How many of the newest events are printed.
const EVENTS: u32 = 10;

async fn show(janua: &Janua, account: &Account) -> Result<String> {
    let (id, now) = (account.id, janua.clock.now());
    let factors = Factors::of(&janua.db, id).await?;
    let sessions = StoredSession::of(&janua.db, id, now).await?;
    let orgs = Membership::all_of(&janua.db, id).await?;
    let orgs: Vec<_> = orgs.iter().map(|one| format!("{} ({})", one.org.name, one.role.name())).collect();
    let yes = |is_so: bool| if is_so { "yes" } else { "no" };
    let at = |moment: Option<Timestamp>| moment.map_or_else(|| "no".to_owned(), |moment| format!("since {moment}"));
    let phone = if factors.sms_phone.is_some() { "text messages, " } else { "" };
    let totp = if factors.totp { "authenticator app, " } else { "" };
    let mut lines = vec![
        format!("{}", named(account)),
        format!("  id              {id}"),
        format!("  email verified  {}", yes(account.email_verified)),
        format!("  disabled        {}", at(account.disabled_at)),
        format!("  platform owner  {}", yes(runs_platform(janua, account))),
        format!("  password        {}", yes(account.password_hash.is_some())),
        format!(
            "  factors         {totp}{phone}{} passkeys, {} recovery codes",
            factors.passkeys.len(),
            factors.recovery_left
        ),
        format!("  organizations   {}", if orgs.is_empty() { "none".into() } else { orgs.join(", ") }),
        format!("  created         {}", account.created_at),
        format!("  sessions        {}", sessions.len()),
    ];
    lines
        .extend(sessions.iter().map(|one| format!("    {}  {}  last seen {}", one.device, one.ip, one.last_seen_at)));
    lines.push("  newest events".to_owned());
    let events = AuditEntry::of_person(&janua.db, id, &AuditFilter::default(), &Key::newest(), EVENTS).await?;
    lines.extend(events.iter().map(|event| {
        let by = event.actor.as_deref().filter(|actor| *actor != id.to_string());
        format!("    {}  {}{}", event.at, event.kind, by.map(|actor| format!("  by {actor}")).unwrap_or_default())
    }));
    Ok(lines.join("\n"))
}
