/**
 * The worker that finds places for the boxes of a graph: `{nodes, edges}` in, the same with places
 * out. dagre (Sugiyama's layers) does the work.
 *
 * @typedef {{id: string, width: number, height: number, x?: number, y?: number}} LayoutNode
 * @typedef {{from: string, to: string, points?: {x: number, y: number}[]}} LayoutEdge
 */

const scope = /** @type {any} */ (globalThis);

scope.addEventListener("message", async (/** @type {MessageEvent} */ { data }) => {
  const { id, nodes, edges } = data;
  try {
    const dagre = await import(new URL("../vendor/dagre.js", import.meta.url).href);
    const graph = new dagre.Graph({ multigraph: true });
    graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 28, marginx: 12, marginy: 12 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const { id: node, width, height } of nodes) graph.setNode(node, { width, height });
    edges.forEach((/** @type {LayoutEdge} */ { from, to }, /** @type {number} */ i) => graph.setEdge(from, to, {}, `e${i}`));
    dagre.layout(graph);
    const { width, height } = graph.graph();
    scope.postMessage({
      id,
      kind: "placed",
      width,
      height,
      nodes: nodes.map((/** @type {LayoutNode} */ node) => {
        const { x, y } = graph.node(node.id);
        return { ...node, x, y };
      }),
      edges: edges.map((/** @type {LayoutEdge} */ { from, to }, /** @type {number} */ i) => ({
        from,
        to,
        points: graph.edge(from, to, `e${i}`).points,
      })),
    });
  } catch (error) {
    const message = `the picture could not be laid out: ${error}`;
    scope.postMessage({ id, kind: "failed", code: "page.layout", message });
  }
});
