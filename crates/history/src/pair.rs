//! The two copies of the intents: `intent.db` and `witness.db`.
//!
//! Each commit gives both files the same new generation number, `intent.db` first. The file with the
//! higher number is therefore the truth, and the other one is restored from it. `intent.db` is
//! synced at each commit. `witness.db` is not: it guards against a lost or damaged file, and after a
//! power cut it is at worst older than `intent.db`.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use crate::file::{self, Identity, Layout, Opening};
use crate::history::{Circumstances, facts};
use crate::intent::{self, Intents};
use crate::intents::{Salvage, Write};
use crate::trouble::{HistoryError, Store, Trouble};

/// The second copy: the same tables, without a sync per commit.
const WITNESS: Layout = Layout { synchronous: "NORMAL", ..intent::LAYOUT };

/// One of the two files, as it was found.
struct Examined {
    store: Store,
    path: PathBuf,
    opening: Result<Opening, HistoryError>,
    /// What could be read of it.
    content: Option<Salvage>,
    fault: Option<Fault>,
}

/// Why a file is not to be trusted, and where it was put.
struct Fault {
    why: String,
    aside: Option<PathBuf>,
}

/// What was found in both files together.
pub(crate) struct Found {
    pub(crate) pair: Pair,
    pub(crate) intents: Intents,
    pub(crate) ceiling: u64,
    /// What has to be written to `intent.db` before anything else.
    pub(crate) saved: Vec<Write>,
    pub(crate) troubles: Vec<Trouble>,
    /// Where a damaged `intent.db` was put, and what was wrong with it.
    pub(crate) damaged: Option<(PathBuf, String)>,
    pub(crate) failing: Option<String>,
    /// Whether neither file was there.
    pub(crate) is_new: bool,
}

/// Both files, open as far as the disk allows.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) path: PathBuf,
    pub(crate) opening: Option<Opening>,
    pub(crate) generation: u64,
    pub(crate) witness: Witness,
}

/// The second copy.
#[derive(Debug)]
pub(crate) struct Witness {
    path: PathBuf,
    opening: Option<Opening>,
    /// Whether it has everything that `intent.db` has. If not, the next commit copies everything.
    pub(crate) in_step: bool,
    failing: bool,
}

impl Examined {
    fn look(
        store: Store,
        path: PathBuf,
        layout: &Layout,
        around: &Circumstances,
    ) -> Result<Examined, HistoryError> {
        let absent = match fs::metadata(&path) {
            Ok(meta) if meta.is_file() && meta.len() == 0 => Some("it is empty"),
            Ok(_) => None,
            Err(_) => Some("it is missing"),
        };
        let mut opening = file::open(&path, layout);
        if let Err(HistoryError::Damaged(why)) = opening {
            let content = Some(Salvage::of_file(&path));
            let aside = Some(set_aside(&path, around)?);
            let opening = file::open(&path, layout);
            return Ok(Examined {
                store,
                path,
                opening,
                content,
                fault: Some(Fault { why, aside }),
            });
        }
        if let Some(why) = absent {
            let fault = Some(Fault { why: why.to_owned(), aside: None });
            return Ok(Examined { store, path, opening, content: None, fault });
        }
        let content = facts(&path, layout, &mut opening, Salvage::read);
        Ok(Examined { store, path, opening, content, fault: None })
    }

    /// What the file says, if it is to be trusted.
    fn trusted(&self) -> Option<&Salvage> {
        self.content.as_ref().filter(|_| self.fault.is_none())
    }

    fn generation(&self) -> u64 {
        self.content.as_ref().map_or(0, |content| content.generation)
    }

    /// What is reported of the file: that it was restored, or that what was in it is lost.
    fn trouble(&self, from: Option<Store>) -> Option<Trouble> {
        let Fault { why, aside } = self.fault.as_ref()?;
        let (store, aside, why) = (self.store, aside.clone(), why.clone());
        Some(match from {
            Some(from) => Trouble::Restored { store, aside, from, why },
            None => Trouble::Damaged { store, aside, why },
        })
    }
}

/// Opens both files and decides which of them is right.
pub(crate) fn open(path: PathBuf, around: &Circumstances) -> Result<Found, HistoryError> {
    let witness_path = path.with_file_name("witness.db");
    let mut intent = Examined::look(Store::Intent, path, &intent::LAYOUT, around)?;
    let witness = Examined::look(Store::Witness, witness_path, &WITNESS, around)?;
    let is_new = intent.content.is_none() && witness.content.is_none();
    let generation = intent.generation().max(witness.generation());
    let outdated = match (intent.trusted(), witness.trusted()) {
        (Some(known), Some(seen)) if known.generation < seen.generation => Some(format!(
            "it is older than witness.db: generation {} instead of {}",
            known.generation, seen.generation
        )),
        (Some(known), Some(seen))
            if known.generation == seen.generation
                && known.intents.unreadable > seen.intents.unreadable =>
        {
            Some(format!("{} of its rows cannot be read", known.intents.unreadable))
        }
        (_, _) => None,
    };
    if let Some(why) = outdated {
        // An open file is closed before it is renamed.
        intent.opening = Err(HistoryError::Closed);
        let aside = Some(set_aside(&intent.path, around)?);
        intent.opening = file::open(&intent.path, &intent::LAYOUT);
        intent.fault = Some(Fault { why, aside });
    }
    let mut troubles = Vec::new();
    let mut saved = Vec::new();
    let mut in_step = false;
    let truth = match (intent.trusted(), witness.trusted()) {
        (Some(known), seen) => {
            in_step = seen.is_some_and(|seen| {
                (seen.generation, &seen.intents) == (known.generation, &known.intents)
            });
            // A home of an older build has no second copy yet.
            let is_due = known.generation > 0
                || witness.fault.as_ref().is_some_and(|fault| fault.aside.is_some());
            troubles.extend(witness.trouble(Some(Store::Intent)).filter(|_| is_due));
            known.clone()
        }
        (None, Some(seen)) => {
            let rest = intent.content.as_ref();
            // The second copy may have missed the last commits of a file that is damaged since.
            let newer = rest.filter(|rest| rest.generation > seen.generation);
            troubles.extend(intent.trouble(Some(Store::Witness)));
            newer.map_or_else(|| seen.clone(), |newer| newer.clone().with_goals_of(seen))
        }
        (None, None) => {
            let both = [&intent, &witness].map(|one| one.content.clone().unwrap_or_default());
            let [known, seen] = both;
            if !is_new {
                troubles.extend(intent.trouble(None));
                troubles.extend(witness.trouble(None));
            }
            if seen.generation > known.generation {
                seen.with_goals_of(&known)
            } else {
                known.with_goals_of(&seen)
            }
        }
    };
    if intent.fault.is_some() && !is_new {
        saved = truth.clone().into_writes();
    }
    let aside = intent.fault.and_then(|fault| Some((fault.aside?, fault.why)));
    Ok(Found {
        intents: truth.intents,
        ceiling: truth.ceiling,
        saved,
        troubles,
        damaged: aside,
        failing: intent.opening.as_ref().err().map(ToString::to_string),
        is_new,
        pair: Pair {
            path: intent.path,
            opening: intent.opening.ok(),
            generation,
            witness: Witness {
                path: witness.path,
                opening: witness.opening.ok(),
                in_step,
                failing: false,
            },
        },
    })
}

fn set_aside(path: &Path, around: &Circumstances) -> Result<PathBuf, HistoryError> {
    file::set_aside(path, around.now()).map_err(|error| HistoryError::Failing(error.to_string()))
}

impl Pair {
    /// Writes to `intent.db`, then to its second copy. `saved` comes first; it is everything that
    /// `intent.db` has to have, where the file was begun anew.
    pub(crate) fn write<'a>(
        &mut self,
        saved: &'a [Write],
        given: impl Iterator<Item = &'a Write> + Clone,
        around: &Circumstances,
    ) -> Result<(), HistoryError> {
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => file::open(&self.path, &intent::LAYOUT)?,
        };
        let opening = self.opening.insert(opening);
        let before = self.generation;
        let known = saved.is_empty().then_some(before);
        let is_idle = saved.is_empty() && given.clone().next().is_none();
        if !is_idle {
            let writes = saved.iter().chain(given.clone());
            self.generation = write(&mut opening.connection, writes, known, before + 1)?;
        }
        self.witness.in_step &= saved.is_empty();
        if !is_idle || !self.witness.in_step {
            self.witness.follow(&opening.connection, given, (before, self.generation), around);
        }
        Ok(())
    }
}

impl Witness {
    /// What the second copy has, if it has everything and can be read.
    pub(crate) fn read(&self) -> Option<Salvage> {
        let opening = self.opening.as_ref().filter(|_| self.in_step)?;
        Salvage::read(&opening.connection).ok()
    }

    /// Brings the second copy up to date. If that fails, supervision and commits go on without it,
    /// the failure is reported once, and the next commit tries again.
    fn follow<'a>(
        &mut self,
        from: &Connection,
        given: impl Iterator<Item = &'a Write>,
        generations: (u64, u64),
        around: &Circumstances,
    ) {
        let outcome = match self.try_follow(from, given, generations, around) {
            Err(HistoryError::Damaged(why)) => self.begin_anew(from, generations.1, why, around),
            outcome => outcome,
        };
        self.in_step = outcome.is_ok();
        let store = Store::Witness;
        match outcome {
            Ok(()) if std::mem::replace(&mut self.failing, false) => {
                around.tell(&Trouble::Recovered { store, lost: 0 });
            }
            Err(error) if !std::mem::replace(&mut self.failing, true) => {
                around.tell(&Trouble::Failing { store, why: error.to_string() });
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn try_follow<'a>(
        &mut self,
        from: &Connection,
        given: impl Iterator<Item = &'a Write>,
        (before, generation): (u64, u64),
        around: &Circumstances,
    ) -> Result<(), HistoryError> {
        let gone = self
            .opening
            .as_ref()
            .is_some_and(|opening| Identity::of(&self.path) != Some(opening.identity));
        if gone {
            (self.opening, self.in_step) = (None, false);
            let why = String::from("the file was removed or replaced");
            let (store, from) = (Store::Witness, Store::Intent);
            around.tell(&Trouble::Restored { store, aside: None, from, why });
        }
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => file::open(&self.path, &WITNESS)?,
        };
        let connection = &mut self.opening.insert(opening).connection;
        if self.in_step {
            write(connection, given, Some(before), generation)?;
        } else {
            copy(from, connection, generation)?;
        }
        Ok(())
    }

    /// Sets a damaged copy aside and makes another.
    fn begin_anew(
        &mut self,
        from: &Connection,
        generation: u64,
        why: String,
        around: &Circumstances,
    ) -> Result<(), HistoryError> {
        if let Some(opening) = self.opening.take() {
            opening.abandon();
        }
        let aside = Some(set_aside(&self.path, around)?);
        let (store, source) = (Store::Witness, Store::Intent);
        around.tell(&Trouble::Restored { store, aside, from: source, why });
        let opening = self.opening.insert(file::open(&self.path, &WITNESS)?);
        copy(from, &mut opening.connection, generation)
    }
}

/// Replaces everything in a file by what another one has.
fn copy(from: &Connection, to: &mut Connection, generation: u64) -> Result<(), HistoryError> {
    let all = Salvage::read(from)?.into_writes();
    write(to, all.iter(), None, generation).map(drop)
}

/// Writes in one transaction. Returns the generation that the file has then: the one that is given,
/// or a higher one if the file is ahead. A file that is behind `known` was replaced by an old copy.
fn write<'a>(
    connection: &mut Connection,
    writes: impl Iterator<Item = &'a Write>,
    known: Option<u64>,
    generation: u64,
) -> Result<u64, HistoryError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = intent::read_generation(&transaction)?;
    if let Some(known) = known.filter(|known| found < *known) {
        let why = format!("its generation is {found} instead of {known}: it is an old copy");
        return Err(HistoryError::Damaged(why));
    }
    let generation = if known.is_some() { generation.max(found + 1) } else { generation };
    for one in writes {
        match one {
            Write::Clear => intent::clear(&transaction)?,
            Write::Intent(intent) => intent.write(&transaction)?,
            Write::Ceiling(seq) => intent::write_ceiling(&transaction, *seq)?,
        }
    }
    intent::write_generation(&transaction, generation)?;
    transaction.commit()?;
    Ok(generation)
}
