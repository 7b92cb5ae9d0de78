//! The mails about machines: to the owner and to the admins of the organization.
use db::Tx;
use kernel::Janua;

use super::Machine;
use crate::{
    accounts::Account,
    messages::mail::{self, Letter, Mail, Sample},
    orgs::{self, Reader},
};

pub(crate) const MAILS: &[Sample] = &[
    Sample(|| Box::new(sample(MachineNews::KillSwitch))),
    Sample(|| Box::new(sample(MachineNews::NearLimit))),
    Sample(|| Box::new(sample(MachineNews::LimitSuspended))),
];

fn sample(news: MachineNews) -> MachineMail {
    let (name, machine, limit) = ("Ada".into(), "Trading bot".into(), "1000 spend a day".into());
    MachineMail { name, machine, limit, page: "/console/orgs/ORG/machines".into(), news }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineNews {
    KillSwitch,
    /// 80 percent of a limit are used.
    NearLimit,
    LimitSuspended,
}

pub struct MachineMail {
    name: String,
    machine: String,
    limit: String,
    page: String,
    news: MachineNews,
}

impl Mail for MachineMail {
    fn name(&self) -> &'static str {
        match self.news {
            MachineNews::KillSwitch => "kill_switch_used",
            MachineNews::NearLimit => "machine_near_limit",
            MachineNews::LimitSuspended => "machine_limit_suspended",
        }
    }

    fn letter(&self) -> Letter {
        let letter = match self.news {
            MachineNews::KillSwitch => Letter::new(
                "A kill switch was used",
                "The kill switch of {} was used. It is suspended, and all of its tokens are invalid.",
                "If this was a mistake, reactivate it in the console.",
            )
            .with(&[&self.machine]),
            MachineNews::NearLimit => Letter::new(
                "80 percent of a limit used",
                "{} has used 80 percent of a limit: {}.",
                "Raise the limit in the console if it should go on.",
            )
            .with(&[&self.machine, &self.limit]),
            MachineNews::LimitSuspended => Letter::new(
                "Suspended by a limit",
                "{} has used up a limit and is suspended: {}. All of its tokens are invalid.",
                "Reactivate it in the console after the limit resets, or raise the limit first.",
            )
            .with(&[&self.machine, &self.limit]),
        };
        letter.to(&self.name).button("Open machines", self.page.as_str())
    }
}

/// Writes to the owner of a machine and to the admins of its organization, each once.
pub async fn tell(tx: &mut Tx, janua: &Janua, machine: &Machine, news: MachineNews, limit: &str) -> db::Result<()> {
    let mut readers = orgs::admins_to_mail(tx, machine.org_id).await?;
    if let Some(owner) = machine.owner_id
        && let Some(account) = Account::find(tx, owner).await?
        && account.email_verified
        && let Some(email) = account.email
        && readers.iter().all(|reader| reader.email != email)
    {
        readers.push(Reader { email, name: account.name });
    }
    let page = format!("/console/orgs/{}/machines", machine.org_id);
    for reader in readers {
        let (name, limit) = (reader.name, limit.to_owned());
        let letter = MachineMail { name, machine: machine.name.clone(), limit, page: page.clone(), news };
        mail::send(tx, janua, &reader.email, &letter).await?;
    }
    Ok(())
}
