//! Mails about payments, to the admins of the organization.
use db::Tx;
use kernel::Janua;
use tenancy::{
    messages::mail::{self, Letter, Mail, Sample},
    orgs::{self, Org, OrgId},
};

pub const MAILS: &[Sample] = &[
    Sample(|| {
        Box::new(Notice {
            name: "Ada".into(),
            org: "Acme".into(),
            path: "/console".into(),
            what: What::PaymentFailed,
        })
    }),
    Sample(|| {
        Box::new(Notice { name: "Ada".into(), org: "Acme".into(), path: "/console".into(), what: What::PlanEnded })
    }),
];

#[derive(Clone, Copy)]
pub enum What {
    PaymentFailed,
    PlanEnded,
}

struct Notice {
    name: String,
    org: String,
    path: String,
    what: What,
}

impl Mail for Notice {
    fn name(&self) -> &'static str {
        match self.what {
            What::PaymentFailed => "payment_failed",
            What::PlanEnded => "plan_ended",
        }
    }

    fn letter(&self) -> Letter {
        let (subject, sentence, after) = match self.what {
            What::PaymentFailed => (
                "Payment failed",
                "The payment for the plan of {} failed.",
                "The plan stays for a few days, and the payment is tried again. Check the card in the customer portal.",
            ),
            What::PlanEnded => (
                "Your plan has ended",
                "The paid plan of {} has ended, and the free plan applies.",
                "What is there stays as it is. You can choose a plan again at any time.",
            ),
        };
        Letter::new(subject, sentence, after)
            .with(&[&self.org])
            .button("Open billing", self.path.clone())
            .to(&self.name)
    }
}

pub async fn send(tx: &mut Tx, janua: &Janua, org: OrgId, what: What) -> db::Result<()> {
    let Some(found) = Org::find(&mut *tx, org).await? else { return Ok(()) };
    for reader in orgs::admins_to_mail(tx, org).await? {
        let notice =
            Notice { name: reader.name, org: found.name.clone(), path: format!("/console/orgs/{org}/billing"), what };
        mail::send(tx, janua, &reader.email, &notice).await?;
    }
    Ok(())
}
