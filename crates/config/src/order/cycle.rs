//! Cycles in a graph of who waits for whom.
//!
//! The graph is walked, never recursed into, and every edge is looked at a bounded number of times.

use std::mem;

use crate::source::Span;

/// One waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where that is written, if it is.
    pub(super) span: Option<Span>,
}

/// Who waits for whom.
pub(super) struct Graph {
    waits: Vec<Vec<Edge>>,
}

impl Graph {
    pub(super) fn new(nodes: usize, edges: impl IntoIterator<Item = Edge>) -> Graph {
        let mut waits = vec![Vec::new(); nodes];
        for edge in edges {
            waits[edge.from].push(edge);
        }
        Graph { waits }
    }

    /// Cycles, no two of which touch, such that whoever can never start leads into one of them.
    ///
    /// First everybody who could start is let start. Those who are left all wait for somebody who
    /// is left, so a walk along their waits must come round. The cost is that of reading the graph.
    pub(super) fn cycles(&self) -> Vec<Vec<Edge>> {
        let stuck = self.stuck();
        let mut walk_of = vec![None; self.waits.len()];
        let mut cycles = Vec::new();
        for start in 0..self.waits.len() {
            let mut walked: Vec<Edge> = Vec::new();
            let mut at = start;
            while stuck[at] && walk_of[at].is_none() {
                walk_of[at] = Some(start);
                let Some(edge) = self.waits[at].iter().find(|edge| stuck[edge.to]) else {
                    break;
                };
                walked.push(*edge);
                at = edge.to;
            }
            if stuck[at] && walk_of[at] == Some(start) {
                let round = walked.iter().skip_while(|edge| edge.from != at);
                cycles.extend(Some(round.copied().collect::<Vec<_>>()).filter(|c| !c.is_empty()));
            }
        }
        cycles
    }

    /// Who can never start.
    fn stuck(&self) -> Vec<bool> {
        let mut waited_for_by = vec![Vec::new(); self.waits.len()];
        let mut left: Vec<usize> = self.waits.iter().map(Vec::len).collect();
        for edge in self.waits.iter().flatten() {
            waited_for_by[edge.to].push(edge.from);
        }
        let mut free: Vec<usize> = (0..left.len()).filter(|node| left[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for waiting in mem::take(&mut waited_for_by[node]) {
                left[waiting] -= 1;
                if left[waiting] == 0 {
                    free.push(waiting);
                }
            }
        }
        left.into_iter().map(|left| left > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<(usize, usize)>> {
        let edges = edges.iter().map(|(from, to)| Edge { from: *from, to: *to, span: None });
        let plain = |cycle: Vec<Edge>| cycle.iter().map(|e| (e.from, e.to)).collect();
        Graph::new(nodes, edges).cycles().into_iter().map(plain).collect()
    }

    #[test]
    fn each_cycle_is_found_once_and_those_who_only_lead_to_it_are_no_part_of_it() {
        assert_eq!(cycles(3, &[(0, 1), (1, 2)]), Vec::<Vec<_>>::new());
        assert_eq!(cycles(1, &[(0, 0)]), [vec![(0, 0)]]);
        assert_eq!(cycles(4, &[(0, 1), (1, 2), (2, 1), (3, 2)]), [vec![(1, 2), (2, 1)]]);
        assert_eq!(
            cycles(4, &[(0, 1), (1, 0), (2, 3), (3, 2)]),
            [vec![(0, 1), (1, 0)], vec![(2, 3), (3, 2)]]
        );
    }

    #[test]
    fn a_long_chain_is_no_cycle_and_needs_no_stack() {
        let chain: Vec<_> = (0..200_000).map(|node| (node, node + 1)).collect();
        assert!(cycles(200_001, &chain).is_empty());
    }
}
