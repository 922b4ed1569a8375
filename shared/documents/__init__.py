"""Documents: conversion of files to text (`extract`), and reading a folder of them (`read_folder`)."""
