// node zarrita.mjs FOLDER URL...: the pixels of each archive's level 0, read over HTTP; of a zip by
// range requests. Writes FOLDER/<number>.raw and prints a JSON list of {shape, dtype}.
import { writeFileSync } from "node:fs";
import { ZipFileStore } from "@zarrita/storage";
import * as zarr from "zarrita";

const [folder, ...urls] = process.argv.slice(2);
const said = [];
for (const [number, url] of urls.entries()) {
  const store = url.endsWith(".zip") ? ZipFileStore.fromUrl(url) : new zarr.FetchStore(url);
  const group = await zarr.open.v2(store, { kind: "group" });
  const array = await zarr.open.v2(group.resolve("0"), { kind: "array" });
  const { data, shape } = await zarr.get(array);
  writeFileSync(`${folder}/${number}.raw`, Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  said.push({ shape, dtype: array.dtype });
}
console.log(JSON.stringify(said));
