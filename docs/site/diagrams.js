// The theme's script draws diagrams with `window.mermaid`; without one it would ask unpkg.com. scripts/site.py puts the library
// beside this file. The least width keeps the texts of a diagram legible: it scrolls in a narrow window.
import { mermaid } from "./mermaid/index.js";

async function render(id, text) {
  const drawn = await mermaid.render(id, text);
  return { ...drawn, svg: drawn.svg.replace("max-width:", "min-width: 600px; max-width:") };
}

window.mermaid = { initialize: mermaid.initialize, render };
