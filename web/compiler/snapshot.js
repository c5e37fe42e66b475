/**
 * Starting Pyodide from a memory that `scripts/snapshot_python.mjs` wrote: Python is up and the
 * compiler imported. The format is Pyodide's own.
 */

/**
 * `createPyodideModule` for `loadPyodide`: Pyodide copies the memory as it is, and does not make
 * room for one that is larger than what it starts with.
 *
 * @param {(settings: any) => Promise<any>} create the default export of `pyodide.asm.mjs`
 * @param {number} nbytes of the snapshot
 */
export function roomFor(create, nbytes) {
  return async (/** @type {any} */ settings) => {
    const module = await create(settings);
    if (module.HEAP8.length < nbytes && !module._emscripten_resize_heap(nbytes)) {
      throw new RangeError(`no memory of ${nbytes} bytes for the compiler`);
    }
    return module;
  };
}
